"""A real text corpus goes through a crash and comes back byte for byte.

The sources of Python's standard library, line by line, at least 50 MB of them, are published by several
producers of the unmodified PyPI client, pipelined and in batches. In the middle the server is killed with
SIGKILL and started again; the client library reconnects and sends again what was not acknowledged. Everything
is then consumed and compared, producer by producer: nothing is missing or changed, the order is that of
sending, and only what had no receipt when the server died may be there twice.
"""

from __future__ import annotations

import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.integration.harness import StandaloneServer

CORPUS_BYTES_MIN = 50_000_000
PRODUCERS = 4
PROGRESS_SECONDS_MAX = 60.0


def corpus_files() -> list[Path]:
    """The standard library's own sources, in a stable order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(
        path
        for path in root.rglob("*.py")
        if "site-packages" not in path.parts and "dist-packages" not in path.parts
    )


def corpus_lines() -> list[list[bytes]]:
    """For each producer its lines, line ends included; the files repeat until there are enough bytes."""
    shares: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
    total, turn = 0, 0
    while total < CORPUS_BYTES_MIN:
        before = total
        for path in corpus_files():
            lines = path.read_bytes().splitlines(keepends=True)
            shares[turn % PRODUCERS] += lines
            total += sum(map(len, lines))
            turn += 1
            if total >= CORPUS_BYTES_MIN:
                break
        assert total > before, "no sources of the standard library found"
    return shares


class Publisher:
    """One producer and its thread: sends its lines, counts receipts and failures."""

    def __init__(self, client: pulsar.Client, topic: str, name: str, lines: list[bytes]) -> None:
        self.lines = lines
        self.confirmed = 0
        self.failures: list[str] = []
        self._producer = client.create_producer(
            topic,
            producer_name=name,
            batching_enabled=True,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
            max_pending_messages=5_000,
            send_timeout_millis=0,
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        send = self._producer.send_async
        on_sent = self._on_sent
        for one in self.lines:
            send(one, on_sent)
        self._producer.flush()

    def _on_sent(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self.confirmed += 1
        else:
            self.failures.append(str(result))


def wait_for_receipts(publishers: list[Publisher], count: int) -> None:
    """Until all publishers together have `count` receipts; fails when none comes for a while."""
    seen, since = -1, time.monotonic()
    while (now := sum(one.confirmed for one in publishers)) < count:
        failures = [failure for one in publishers for failure in one.failures]
        assert not failures, failures[:3]
        if now > seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < PROGRESS_SECONDS_MAX, f"no receipt after {seen} of {count}"
        time.sleep(0.01)


def consume(consumer: pulsar.Consumer, last_of: dict[str, int]) -> dict[str, list[bytes]]:
    """Everything, by producer name, acknowledged cumulatively now and then."""
    got: dict[str, list[bytes]] = {name: [] for name in last_of}
    for count in range(1, sum(last_of.values()) + 1):
        message = consumer.receive(int(PROGRESS_SECONDS_MAX * 1000))
        got[message.producer_name()].append(message.data())
        if count % 10_000 == 0:
            consumer.acknowledge_cumulative(message)
    return got


def drain_rest(consumer: pulsar.Consumer, got: dict[str, list[bytes]]) -> None:
    """What is left on the topic, which is as much as was sent twice."""
    while True:
        try:
            message = consumer.receive(2_000)
        except pulsar.Timeout:
            return
        got[message.producer_name()].append(message.data())


def common_prefix(one: list[bytes], other: list[bytes]) -> int:
    pairs: Iterator[tuple[bytes, bytes]] = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def check(name: str, sent: list[bytes], got: list[bytes], confirmed_at_kill: int) -> int:
    """`got` is `sent` with at most one stretch repeated; returns how many messages came twice."""
    repeated = len(got) - len(sent)
    assert repeated >= 0, f"{name}: {-repeated} of {len(sent)} messages are missing"
    turn = common_prefix(sent, got)
    start = turn - repeated  # what follows the turn starts here again
    assert got[turn:] == sent[start:], f"{name}: not the lines that were sent, from message {turn} on"
    if repeated:
        assert start >= confirmed_at_kill, f"{name}: message {start} had its receipt and came twice"
    return repeated


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_corpus_survives_a_kill_in_the_middle(
    server: StandaloneServer, new_client: Callable[..., pulsar.Client], topic: str
) -> None:
    shares = corpus_lines()
    total = sum(map(len, shares))
    print(f"{total} lines, {sum(len(one) for share in shares for one in share)} bytes")
    new_client().subscribe(topic, "sub").close()
    publishers = [Publisher(new_client(), topic, f"producer-{n}", lines) for n, lines in enumerate(shares)]
    started = time.monotonic()
    wait_for_receipts(publishers, total // 2)
    server.kill()
    confirmed_at_kill = [one.confirmed for one in publishers]
    server.start()
    wait_for_receipts(publishers, total)
    print(f"published in {time.monotonic() - started:.1f} s, {sum(confirmed_at_kill)} before the kill")
    started = time.monotonic()
    consumer = new_client().subscribe(topic, "sub", receiver_queue_size=10_000)
    got = consume(consumer, {f"producer-{n}": len(lines) for n, lines in enumerate(shares)})
    drain_rest(consumer, got)
    print(f"consumed in {time.monotonic() - started:.1f} s")
    repeated = [
        check(f"producer-{n}", lines, got[f"producer-{n}"], confirmed_at_kill[n])
        for n, lines in enumerate(shares)
    ]
    print(f"came twice, not confirmed when the server died: {repeated}")
