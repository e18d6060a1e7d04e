"""Bits that flip in the files of a stopped server: never served as data, never hiding what comes after.

The same checks run against every format structure in simulation, with an exact oracle; here a whole server
starts on the damaged files, and clients see what is left.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.faults.conftest import NewServer
from tests.faults.observe import log_lines, metric
from tests.faults.traffic import Position, Publisher
from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import line

SETTINGS = {"magnetarSegmentSizeBytes": str(128 << 10), "magnetarLogFillAheadBytes": str(64 << 10)}
BLOCK = 4096
SINGLES = 150
"""Messages published one at a time: each is a record and a group of its own."""

Truth = dict[str, dict[Position, bytes]]


def fill(server: StandaloneServer, topic: str) -> Truth:
    """Two topics with a subscription each: one published message by message, one pipelined; then a kill."""
    server.start()
    truth: Truth = {}
    with line(server.endpoint) as c:
        for consumer_id, name in enumerate((topic + "-singles", topic + "-pipelined")):
            c.subscribe(name, consumer_id=consumer_id)
        c.open_producer(topic + "-singles")
        singles = [b"single %d" % n + bytes(n % 700) for n in range(SINGLES)]
        truth[topic + "-singles"] = {c.publish(one, first=n)[0]: one for n, one in enumerate(singles)}
    publisher = Publisher(server.endpoint, topic + "-pipelined", "p", size=300)
    publisher.start()
    publisher.more_receipts(1_500)
    publisher.finish()
    truth[topic + "-pipelined"] = {
        position: publisher.payload(number) for number, position in publisher.confirmed.items()
    }
    time.sleep(4)  # idle: an empty group tells that the one before it was durable
    server.kill()
    return truth


def flip_bits(segments: Path, count: int, randomness: random.Random) -> list[str]:
    """Flip bits in the log's files: half of them where headers and directories stand, half anywhere."""
    flipped = []
    files = sorted(segments.iterdir())
    for _ in range(count):
        path = randomness.choice(files)
        content = bytearray(path.read_bytes())
        if randomness.random() < 0.5:
            starts = [at for at in range(0, len(content), BLOCK) if content[at : at + 4].strip(b"\0")]
            offset = randomness.choice(starts or [0]) + randomness.randrange(200)
        else:
            written = [at for at, byte in enumerate(content) if byte]
            offset = randomness.choice(written or [0])
        bit = randomness.randrange(8)
        content[offset] ^= 1 << bit
        path.write_bytes(content)
        flipped.append(f"{path.name}:{offset}.{bit}")
    return flipped


def read_by_subscription(server: StandaloneServer, topic: str) -> dict[Position, bytes] | None:
    """What the topic's subscription still delivers, in order, up to a message that is published now.

    None when the topic says that its cursors are damaged: where its subscriptions stand is not guessed.
    """
    with line(server.endpoint) as c:
        request_id = c.request("producer", topic=topic, producer_id=1)
        answer = c.receive()
        if answer.name == "error":
            assert answer.command.request_id == request_id
            assert pb.ServerError.Name(answer.command.error) == "PersistenceError", answer
            assert "cursor" in answer.command.message, answer
            c.expect_quiet()
            return None
        (end,) = c.publish(b"the end")
        c.subscribe(topic)
        c.flow(1_000_000)
        got: dict[Position, bytes] = {}
        while True:
            frame = c.expect("message")
            assert frame.position > max(got, default=(-1, -1)), "out of order"
            if frame.position == end:
                return got
            got[frame.position] = frame.payload


def run_trials(new_server: NewServer, directory: Path, topic: str, trials: int, seed: int) -> None:
    server = new_server(SETTINGS)
    truth = fill(server, topic)
    sound = directory / "sound"
    shutil.copytree(server.data_dir, sound)
    sealed = len(list((sound / "ledgers" / "segments").iterdir())) - 1
    assert sealed >= 4, "there are sealed segments and an open one"
    bits = holes = damaged_starts = refused = 0
    for trial in range(trials):
        randomness = random.Random(f"{seed} {trial}")
        shutil.rmtree(server.data_dir)
        shutil.copytree(sound, server.data_dir)
        flips = flip_bits(server.data_dir / "ledgers" / "segments", randomness.choice([1, 2, 5]), randomness)
        bits += len(flips)
        told = f"seed {seed}, trial {trial}: {flips}"
        server.start()
        missing: dict[str, int] = {}
        for name, expected in truth.items():
            got = read_by_subscription(server, name)
            if got is None:
                refused += 1
                continue
            wrong = [position for position in got if got[position] != expected.get(position)]
            assert not wrong, f"{told}: served wrong at {wrong[:3]}"
            missing[name] = len(expected) - len(got)
        assert missing.get(topic + "-singles", 0) <= len(flips), (
            f"{told}: {missing}: more is hidden than damaged"
        )
        assert missing.get(topic + "-pipelined", 0) <= 200 * len(flips), f"{told}: {missing}"
        if any(missing.values()):
            counted = metric(server, "magnetar_log_damaged_records_total")
            counted += metric(server, "magnetar_log_unreadable_reads_total")
            cut = metric(server, "magnetar_log_tail_cuts_total")
            assert counted + cut > 0, f"{told}: {missing}, and nothing is counted"
            assert metric(server, "magnetar_managed_ledger_unreadable_entries_total") + cut > 0, told
            holes += sum(missing.values())
            damaged_starts += 1
        server.kill()
    lines = log_lines(server, "damaged records in a segment, kept as holes")
    lines += log_lines(server, "entry unreadable, skipped")
    print(
        f"{trials} starts on files with {bits} flipped bits, {damaged_starts} with {holes} holes, "
        f"{refused} topics refused for damaged cursors, {len(lines)} log lines"
    )
    assert damaged_starts, "the bits hit something"
    assert lines


@pytest.mark.full
def test_flipped_bits_are_never_served_and_hide_nothing_else(
    new_server: NewServer, directory: Path, topic: str
) -> None:
    run_trials(new_server, directory, topic, trials=4, seed=1)


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("trials", [15, pytest.param(40, marks=pytest.mark.nightly)])
def test_flipped_bits_anywhere_are_never_served_and_hide_nothing_else(
    new_server: NewServer, directory: Path, topic: str, trials: int
) -> None:
    run_trials(new_server, directory, topic, trials=trials, seed=random.SystemRandom().randrange(1 << 32))


@pytest.mark.full
def test_damaged_cursors_are_refused_with_a_reason_and_never_guessed(
    new_server: NewServer, topic: str
) -> None:
    server = new_server(SETTINGS)
    server.start()
    other = topic + "-other"
    with line(server.endpoint) as c:
        c.subscribe(topic, "a-name-that-stands-nowhere-else")
        c.open_producer(topic)
        c.publish(b"1", b"2")
        c.subscribe(other, consumer_id=2)
        c.open_producer(other, producer_id=2)
        positions = c.publish(b"3", b"4", producer_id=2)
    time.sleep(4)
    server.kill()
    hits = 0
    for path in sorted((server.data_dir / "ledgers" / "segments").iterdir()):
        content = bytearray(path.read_bytes())
        at = content.find(b"a-name-that-stands-nowhere-else")
        if at >= 0:
            content[at] ^= 1
            path.write_bytes(content)
            hits += 1
    assert hits == 1
    server.start()
    assert read_by_subscription(server, topic) is None
    assert read_by_subscription(server, other) == dict(zip(positions, [b"3", b"4"], strict=True))
    assert metric(server, "magnetar_log_unreadable_reads_total") >= 1
