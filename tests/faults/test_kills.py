"""kill -9 at random moments, also during recovery, while everything is in use: no promise is broken.

Two publishers on raw frames, the PyPI client's publisher, an acknowledging consumer on a Shared subscription
(individual acknowledgements, with and without receipts) and one on an Exclusive (cumulative ones) work at the
same time. After the kills everything is read back and compared with what each of them was told.

This proves recovery of the process, not of the disk: the page cache survives a kill. What a power loss leaves
behind is the business of tests/simulation.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pulsar
import pytest

from tests.faults.conftest import NewServer
from tests.faults.traffic import Position, Publisher, Traffic, keep, numbers_of, read_frames, read_topic
from tests.integration.harness import Endpoint, eventually
from tests.integration.raw.transcript import Frame, Line, batch_messages, line, message_id

SEED = 20261121


@dataclass
class Acknowledged:
    """What one subscription was told over all its connections."""

    answered: set[Position] = field(default_factory=set)
    """Acknowledged, and the receipt came."""
    in_doubt: set[Position] = field(default_factory=set)
    """Acknowledged, and no receipt came (yet, or none was asked for)."""


class IndividualConsumer(Traffic):
    """Acknowledges at random three of four messages, half of them with a receipt."""

    def __init__(self, endpoint: Endpoint, topic: str, state: Acknowledged, seed: int) -> None:
        super().__init__(endpoint)
        self.topic = topic
        self.state = state
        self.got: dict[Position, bytes] = {}
        self._random = random.Random(seed)

    def work(self, c: Line) -> None:
        c.subscribe(self.topic, "individual", subType="Shared")
        c.flow(1_000)
        asked: dict[int, list[Position]] = {}
        batch: list[Position] = []
        while not self._ending.is_set():
            frame = c.receive(30.0)
            if frame.name == "ackResponse":
                assert not frame.command.HasField("error"), frame
                done = asked.pop(frame.command.request_id)
                self.state.answered.update(done)
                self.state.in_doubt.difference_update(done)
                continue
            assert frame.name == "message", frame
            assert frame.position not in self.state.answered, f"{frame.position} was acknowledged and is back"
            assert frame.position not in self.got, f"{frame.position} came twice to one consumer"
            self.got[frame.position] = frame.payload
            if len(self.got) % 500 == 0:
                c.flow(500)
            if self._random.random() < 0.75:
                batch.append(frame.position)
            if len(batch) >= 20:
                self.state.in_doubt.update(batch)
                fields = {
                    "consumer_id": 1,
                    "ack_type": "Individual",
                    "message_id": [message_id(position) for position in batch],
                }
                if self._random.random() < 0.5:
                    asked[c.request("ack", **fields)] = batch
                else:
                    c.send("ack", **fields)
                batch = []


class CumulativeConsumer(Traffic):
    """Acknowledges every 50th message and all before it, with a receipt."""

    def __init__(self, endpoint: Endpoint, topic: str, state: Acknowledged) -> None:
        super().__init__(endpoint)
        self.topic = topic
        self.state = state
        self.got: dict[Position, bytes] = {}

    def work(self, c: Line) -> None:
        c.subscribe(self.topic, "cumulative")
        c.flow(1_000)
        asked: dict[int, Position] = {}
        while not self._ending.is_set():
            frame = c.receive(30.0)
            if frame.name == "ackResponse":
                assert not frame.command.HasField("error"), frame
                self.state.answered.add(asked.pop(frame.command.request_id))
                continue
            assert frame.name == "message", frame
            mark = max(self.state.answered, default=(-1, -1))
            assert frame.position > mark, f"{frame.position} is back, everything to {mark} was acknowledged"
            assert frame.position > max(self.got, default=(-1, -1)), f"{frame.position} is out of order"
            self.got[frame.position] = frame.payload
            if len(self.got) % 500 == 0:
                c.flow(500)
            if len(self.got) % 50 == 0:
                self.state.in_doubt.add(frame.position)
                request_id = c.request(
                    "ack", consumer_id=1, ack_type="Cumulative", message_id=[message_id(frame.position)]
                )
                asked[request_id] = frame.position


class PypiPublisher:
    """The unmodified client with one producer that lives through all kills and sends again by itself."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._client = pulsar.Client(
            endpoint.service_url,
            operation_timeout_seconds=30,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        self._producer = self._client.create_producer(
            topic,
            producer_name="pypi",
            send_timeout_millis=0,
            max_pending_messages=100_000,
            batching_enabled=True,
            batching_max_publish_delay_ms=2,
        )
        self.sent = 0
        self.confirmed = 0
        self.confirmed_at_kill: list[int] = []
        self.failures: list[str] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.send_async(f"pypi:{self.sent}:".encode(), self._told)
            self.sent += 1

    def _told(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self.confirmed += 1
        else:
            self.failures.append(str(result))

    def publishes_again(self) -> None:
        """Wait until it has found the server again after the last kill."""
        self.send(300)
        before = self.confirmed_at_kill[-1] if self.confirmed_at_kill else 0
        eventually(lambda: self.confirmed > before, "the PyPI client publishes again", 60)

    def killed(self) -> None:
        self.confirmed_at_kill.append(self.confirmed)

    def close(self) -> None:
        self._producer.flush()
        self._client.close()

    def check(self, got: list[bytes]) -> None:
        """All of it in order; after a kill it may start again, but not before what was confirmed then."""
        assert not self.failures, self.failures[:3]
        assert self.confirmed == self.sent
        rewinds: Iterator[int] = iter(self.confirmed_at_kill)
        expected = 0
        for number in numbers_of("pypi", got):
            if number < expected:
                bound = next(rewinds, None)
                assert bound is not None, "sent again more often than the server was killed"
                assert number >= bound, f"{number} was confirmed, and is there twice"
            else:
                assert number == expected, f"{expected} to {number - 1} are missing"
            expected = number + 1
        assert expected == self.sent


class Server(Protocol):
    """What is killed: a standalone, or a broker and what it stands on."""

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def starts(self) -> int: ...

    def start(self) -> None: ...

    def launch(self) -> None: ...

    def kill(self) -> None: ...


def kill_and_recover(server: Server, randomness: random.Random) -> None:
    """One kill; at times another one while the server recovers from it."""
    server.kill()
    while randomness.random() < 0.2:
        server.launch()
        time.sleep(randomness.uniform(0.0, 0.8))
        server.kill()
    server.start()


def run_cycles(server: Server, topic: str, cycles: int, seed: int) -> None:
    print(f"seed {seed}")
    randomness = random.Random(seed)
    server.start()
    keep(server.endpoint, topic)
    pypi_topic = topic + "-pypi"
    keep(server.endpoint, pypi_topic)
    pypi = PypiPublisher(server.endpoint, pypi_topic)
    publishers: list[Publisher] = []
    individual, cumulative = Acknowledged(), Acknowledged()
    for cycle in range(cycles):
        pypi.publishes_again()
        now = [Publisher(server.endpoint, topic, f"p{cycle}.{n}", pause_s=0.01) for n in range(2)]
        consumers: list[Traffic] = [
            IndividualConsumer(server.endpoint, topic, individual, randomness.randrange(1 << 32)),
            CumulativeConsumer(server.endpoint, topic, cumulative),
        ]
        for one in [*now, *consumers]:
            one.start()
        for one in now:
            one.more_receipts(25)
        pypi.send(300)
        if cycle == 0:
            consumers[0].until(lambda: bool(individual.answered), "one of the individual ones is answered")
            consumers[1].until(lambda: bool(cumulative.answered), "one of the cumulative ones is answered")
        time.sleep(randomness.uniform(0.0, 0.5))
        server.kill()
        pypi.killed()
        for one in [*now, *consumers]:
            one.finish()
        publishers += now
        kill_and_recover(server, randomness)
    pypi.close()
    got = read_topic(server.endpoint, topic)
    in_order = list(got.values())
    confirmed = 0
    for publisher in publishers:
        assert not publisher.refused
        for number, position in publisher.confirmed.items():
            assert got.get(position) == publisher.payload(number), f"message {number} is not at {position}"
        there = numbers_of(publisher.producer_name, in_order)
        assert there == list(range(len(there))), f"{publisher.producer_name}: holes or disorder"
        confirmed += len(publisher.confirmed)
    rest_of_shared = drain(server, topic, "individual", max(got), subType="Shared")
    assert not rest_of_shared & individual.answered, "acknowledged, and back"
    lost = set(got) - rest_of_shared - individual.answered - individual.in_doubt
    assert not lost, f"never acknowledged, and not delivered any more: {sorted(lost)[:5]}"
    mark = max(cumulative.answered, default=(-1, -1))
    highest = max(cumulative.answered | cumulative.in_doubt, default=(-1, -1))
    rest = drain(server, topic, "cumulative", max(got))
    assert min(rest, default=mark) >= mark
    assert {position for position in got if position > highest} <= rest
    pypi.check([one for batch in read_frames(server.endpoint, pypi_topic) for one in messages_of(batch)])
    print(
        f"{cycles} kills, {server.starts} starts: {confirmed} messages confirmed to raw publishers and "
        f"{pypi.confirmed} to the PyPI client; {len(individual.answered)} individual and "
        f"{len(cumulative.answered)} cumulative acknowledgements with a receipt"
    )
    assert confirmed > 50 * cycles


def messages_of(frame: Frame) -> list[bytes]:
    batch = frame.metadata is not None and frame.metadata.HasField("num_messages_in_batch")
    return batch_messages(frame.payload) if batch else [frame.payload]


def drain(server: Server, topic: str, subscription: str, last: Position, **fields: Any) -> set[Position]:
    """Every position that a subscription still has to deliver, up to `last`, which nobody acknowledged."""
    with line(server.endpoint) as c:
        c.open_producer(topic)
        end = c.publish(b"the end")[0]
        c.subscribe(topic, subscription, **fields)
        c.flow(1_000_000)
        got: set[Position] = set()
        while True:
            position = c.expect("message").position
            if position >= end:
                return got
            assert position not in got
            got.add(position)


@pytest.mark.full
def test_kills_lose_nothing_that_was_confirmed_and_bring_back_nothing_that_was_acknowledged(
    new_server: NewServer, topic: str
) -> None:
    run_cycles(new_server(), topic, cycles=3, seed=SEED)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cycles", [30, pytest.param(100, marks=pytest.mark.nightly)])
def test_many_kills_lose_nothing_and_bring_back_nothing(
    new_server: NewServer, topic: str, cycles: int
) -> None:
    run_cycles(new_server(), topic, cycles=cycles, seed=random.SystemRandom().randrange(1 << 32))


@pytest.mark.full
def test_acknowledgements_older_than_the_flush_interval_survive_a_kill_without_a_receipt(
    new_server: NewServer, topic: str
) -> None:
    server = new_server()
    server.start()
    with line(server.endpoint) as c:
        c.subscribe(topic, "one", subType="Shared")
        c.subscribe(topic, "other", consumer_id=2)
        c.open_producer(topic)
        positions = c.publish(*[b"%d" % n for n in range(1_000)])
        for consumer_id in (1, 2):
            c.flow(1_000, consumer_id=consumer_id)
        c.expect_messages(2_000)
        c.ack(*positions[::2], receipt=False)
        c.ack(positions[699], consumer_id=2, cumulative=True, receipt=False)
        c.expect_quiet()
        time.sleep(3)  # the interval is 1 s, and what is later in the log is durable later
        c.open_producer(topic + "-later", producer_id=2)
        c.publish(b"later", producer_id=2)
        server.kill()
    server.start()
    with line(server.endpoint) as c:
        c.subscribe(topic, "one", subType="Shared")
        c.flow(1_000)
        assert [frame.position for frame in c.expect_messages(500)] == positions[1::2]
        c.expect_quiet()
    with line(server.endpoint) as c:
        c.subscribe(topic, "other")
        c.flow(1_000)
        assert [frame.position for frame in c.expect_messages(300)] == positions[700:]
        c.expect_quiet()
