"""kill -9 again and again while messages are published and consumed: nothing confirmed is ever lost.

This proves recovery of the process, not of the disk: the page cache survives a kill. What a power loss leaves
behind is the simulation's business (tests/simulation).
"""

from __future__ import annotations

import random
import threading

import pytest

from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import ConnectionEnded, Line, line, payload_frame

IN_FLIGHT_MAX = 500
BURST = 50
PERMITS = 1_000


def publish_until_killed(c: Line, topic: str, cycle: int) -> dict[bytes, tuple[int, int]]:
    """Pipelined publishing until the connection dies; the position of each payload that got its receipt."""
    confirmed: dict[bytes, tuple[int, int]] = {}
    sent = 0
    try:
        c.open_producer(topic)
        while True:
            while sent - len(confirmed) <= IN_FLIGHT_MAX - BURST:
                c.send_bytes(
                    b"".join(payload_frame(1, n, b"%d:%d" % (cycle, n)) for n in range(sent, sent + BURST))
                )
                sent += BURST
            receipt = c.expect("send_receipt", sequence_id=len(confirmed))
            confirmed[b"%d:%d" % (cycle, len(confirmed))] = receipt.position
    except (ConnectionEnded, OSError):
        return confirmed


def read_back(c: Line, topic: str, first: tuple[int, int], last: bytes) -> dict[bytes, tuple[int, int]]:
    """Every message from position `first` to the one whose payload is `last`, in the order of delivery."""
    ledger, entry = first
    c.subscribe(topic, "check", 9, durable=False, start_message_id={"ledgerId": ledger, "entryId": entry})
    got: dict[bytes, tuple[int, int]] = {}
    while last not in got:
        if len(got) % PERMITS == 0:
            c.flow(2 * PERMITS if not got else PERMITS, consumer_id=9)
        message = c.expect("message")
        got[message.payload] = message.position
    return got


def run_cycles(server: StandaloneServer, topic: str, cycles: int, seed: int) -> None:
    randomness = random.Random(seed)
    everything: dict[bytes, tuple[int, int]] = {}
    with line(server.endpoint) as c:
        c.subscribe(topic, "keeper")
    for cycle in range(cycles):
        with line(server.endpoint) as c:
            killer = threading.Timer(randomness.uniform(0.05, 0.6), server.kill)
            killer.start()
            confirmed = publish_until_killed(c, topic, cycle)
            killer.join()
        server.start()
        everything |= confirmed
        if confirmed:
            with line(server.endpoint) as c:
                payloads = list(confirmed)
                got = read_back(c, topic, confirmed[payloads[0]], payloads[-1])
                assert [p for p in got if p in confirmed] == payloads, f"seed {seed}, cycle {cycle}: order"
                assert {p: got[p] for p in payloads} == confirmed, f"seed {seed}, cycle {cycle}: positions"
    assert everything, f"seed {seed}: nothing was ever confirmed"
    # At the end once more from the front, through the durable subscription that kept it all.
    with line(server.endpoint) as c:
        c.subscribe(topic, "keeper")
        seen: list[bytes] = []
        last = list(everything)[-1]
        c.flow(2 * PERMITS)
        while not seen or seen[-1] != last:
            message = c.expect("message")
            seen.append(message.payload)
            if len(seen) % PERMITS == 0:
                c.ack(message.position, cumulative=True, receipt=False)
                c.flow(PERMITS)
        assert len(set(seen)) == len(seen), f"seed {seed}: a message came twice on one consumer"
        assert [p for p in seen if p in everything] == list(everything), f"seed {seed}"


def test_confirmed_messages_survive_a_few_kills(server: StandaloneServer, topic: str) -> None:
    run_cycles(server, topic, cycles=5, seed=20261121)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_confirmed_messages_survive_a_hundred_kills(server: StandaloneServer, topic: str) -> None:
    run_cycles(server, topic, cycles=100, seed=random.SystemRandom().randrange(1 << 32))


def test_confirmed_acknowledgements_survive_kills(server: StandaloneServer, topic: str) -> None:
    """Holes all over the place: what has its AckResponse never returns, what has no Ack always does."""
    randomness = random.Random(17)
    position_of: dict[bytes, tuple[int, int]] = {}
    acked: set[bytes] = set()
    in_doubt: set[bytes] = set()
    with line(server.endpoint) as c:
        c.subscribe(topic, "worker", subType="Shared")
    for cycle in range(6):
        with line(server.endpoint) as c:
            c.open_producer(topic)
            fresh = [b"%d:%d" % (cycle, n) for n in range(300)]
            position_of.update(zip(fresh, c.publish(*fresh), strict=True))
            c.subscribe(topic, "worker", subType="Shared")
            c.flow(10_000)
            got: list[bytes] = []
            while not got or got[-1] != fresh[-1]:
                got.append(c.expect("message").payload)
            assert acked.isdisjoint(got), f"cycle {cycle}: acknowledged messages came again"
            assert set(position_of) - acked - in_doubt <= set(got), f"cycle {cycle}: messages are lost"
            assert len(set(got)) == len(got)
            acked |= in_doubt - set(got)  # these were written before the server died
            for start in range(0, len(got), 20):
                some = randomness.sample(got[start : start + 20], k=min(10, len(got) - start))
                c.ack(*[position_of[payload] for payload in some])
                acked.update(some)
            in_doubt = set(sorted(set(got) - acked)[:50])
            c.ack(*[position_of[payload] for payload in sorted(in_doubt)], receipt=False)
            server.kill()
        server.start()
