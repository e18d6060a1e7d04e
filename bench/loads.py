"""The loads that scenarios apply to a broker. Each function runs in a process of its own and returns plain
figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.connection import Connection, connect
from bench.figures import curve, percentile
from bench.frames import SendTemplate
from bench.generator import Acks, consume, produce, produce_and_consume
from bench.interleaved import drain_interleaved, fill_interleaved
from bench.paced import one_in_flight, produce_at
from bench.target import Target, new_topic

ENTRIES_MAX = 200_000_000
"""More than any run by time can send; sequence ids keep their length up to there."""

Figures = dict[str, float]
Curves = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures by name, and latency curves at figures.QUANTILES."""

    figures: Figures
    curves: Curves


Measure = Callable[[Target], Measured]


@dataclass(frozen=True, slots=True)
class Produce:
    """Publish to a fresh topic without subscription, `window` in flight, for `seconds` or `entries`."""

    size: int
    batch: int = 1
    window: int = 1_000
    seconds: float = 0.0
    entries: int = ENTRIES_MAX

    def __call__(self, target: Target) -> Measured:
        template = SendTemplate(self.size, self.batch)
        connection = connect(target)
        connection.open_producer(new_topic())
        cpu_before = target.cpu_seconds()
        run = produce(
            connection.hand_over_any(),
            template,
            window=self.window,
            entries=self.entries,
            seconds=self.seconds,
        )
        cpu = target.cpu_seconds() - cpu_before
        messages = run.entries * template.messages
        figures = {
            "entries": run.entries,
            "entries/s": run.entries / run.seconds,
            "MB/s": run.entries * template.payload_bytes / run.seconds / 1e6,
            "ack p50": percentile(run.ack_ms, 0.5),
            "ack p99": percentile(run.ack_ms, 0.99),
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class OneInFlight:
    """Publish, await the acknowledgement, publish the next."""

    size: int
    seconds: float
    discard: int = 200

    def __call__(self, target: Target) -> Measured:
        connection = Connection(target.service_url)
        connection.open_producer(new_topic())
        run = one_in_flight(
            connection.hand_over(), SendTemplate(self.size), seconds=self.seconds, discard=self.discard
        )
        connection.close()
        figures = {
            "entries/s": run.entries / run.seconds,
            "ack p50": percentile(run.ack_ms, 0.5),
            "ack p99": percentile(run.ack_ms, 0.99),
        }
        return Measured(figures, {"ack": curve(run.ack_ms)})


@dataclass(frozen=True, slots=True)
class AtRate:
    """Publish by a schedule, consume on another connection; the first second is not counted."""

    size: int
    rate: float
    seconds: float
    consume: bool = True
    topic: str = ""
    """A fresh one when empty."""

    def __call__(self, target: Target) -> Measured:
        topic = self.topic or new_topic()
        consumer = Connection(target.service_url) if self.consume else None
        if consumer is not None:
            consumer.subscribe(topic)
        producer = Connection(target.service_url)
        producer.open_producer(topic)
        cpu_before = target.cpu_seconds()
        discard = int(self.rate)
        run = produce_at(
            producer.hand_over(),
            None if consumer is None else consumer.hand_over(),
            SendTemplate(self.size),
            rate=self.rate,
            entries=discard + int(self.rate * self.seconds),
            discard=discard,
        )
        cpu = target.cpu_seconds() - cpu_before
        for connection in (producer, consumer):
            if connection is not None:
                connection.close()
        figures = {
            "entries": run.entries,
            "entries/s": run.entries / run.seconds,
            "ack p50": percentile(run.ack_ms, 0.5),
            "ack p99": percentile(run.ack_ms, 0.99),
            "end to end p50": percentile(run.end_to_end_ms, 0.5),
            "end to end p99": percentile(run.end_to_end_ms, 0.99),
            "generator lag p50": percentile(run.lag_ms, 0.5),
            "generator lag p99": percentile(run.lag_ms, 0.99),
            "server CPU": cpu / (run.seconds + 1) * 100,
        }
        return Measured(figures, {"ack": curve(run.ack_ms), "end to end": curve(run.end_to_end_ms)})


@dataclass(frozen=True, slots=True)
class Tail:
    """Publish at full speed for `seconds` and consume at the same time, until all has come back."""

    size: int
    acks: Acks
    seconds: float = 0.0
    batch: int = 1
    window: int = 1_000
    entries: int = ENTRIES_MAX

    def __call__(self, target: Target) -> Measured:
        template = SendTemplate(self.size, self.batch)
        topic = new_topic()
        consumer, producer = connect(target), connect(target)
        consumer.subscribe(topic, sub_type="Exclusive" if self.acks == "cumulative" else "Shared")
        producer.open_producer(topic)
        cpu_before = target.cpu_seconds()
        run = produce_and_consume(
            producer.hand_over_any(),
            consumer.hand_over_any(),
            template,
            window=self.window,
            entries=self.entries,
            seconds=self.seconds,
            acks=self.acks,
        )
        cpu = target.cpu_seconds() - cpu_before
        messages = run.entries * template.messages
        figures = {
            "entries": run.entries,
            "messages/s": messages / run.seconds,
            "ack p50": percentile(run.ack_ms, 0.5),
            "ack p99": percentile(run.ack_ms, 0.99),
            "end to end p50": percentile(run.end_to_end_ms, 0.5),
            "end to end p99": percentile(run.end_to_end_ms, 0.99),
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class Drain:
    """Publish a backlog, then take it all through one Exclusive consumer that acknowledges cumulatively."""

    size: int
    entries: int
    batch: int = 1

    def __call__(self, target: Target) -> Measured:
        template = SendTemplate(self.size, self.batch)
        topic = new_topic()
        keeper = connect(target)
        keeper.subscribe(topic)
        keeper.close()
        producer = connect(target)
        producer.open_producer(topic)
        produce(producer.hand_over_any(), template, window=1_000, entries=self.entries)
        consumer = connect(target)
        consumer.subscribe(topic)
        cpu_before = target.cpu_seconds()
        run = consume(consumer.hand_over_any(), template, entries=self.entries, acks="cumulative")
        cpu = target.cpu_seconds() - cpu_before
        messages = self.entries * template.messages
        figures = {
            "entries": run.entries,
            "messages/s": messages / run.seconds,
            "MB/s": run.entries * template.payload_bytes / run.seconds / 1e6,
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class DrainTopics:
    """The same over many topics, whose messages were published by turns and so lie interleaved on disk."""

    size: int
    topics: int
    entries_per_topic: int

    def __call__(self, target: Target) -> Measured:
        prefix = new_topic()
        topics = [f"{prefix}-{number}" for number in range(self.topics)]
        publish_seconds = fill_interleaved(target.service_url, topics, self.size, self.entries_per_topic)
        cpu_before = target.cpu_seconds()
        seconds = drain_interleaved(target.service_url, topics, self.size, self.entries_per_topic)
        cpu = target.cpu_seconds() - cpu_before
        messages = self.topics * self.entries_per_topic
        figures = {
            "entries": messages,
            "messages/s": messages / seconds,
            "published/s": messages / publish_seconds,
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class IdleTopics:
    """Make `topics`, each with one subscription, and leave them loaded; memory and CPU for each.

    With `topics` that exist (`prefix` as the earlier call returned it) this loads instead of making them.
    """

    prefix: str
    topics: int
    at_once: int = 500

    def __call__(self, target: Target) -> Measured:
        connection = Connection(target.service_url)
        rss_before, cpu_before = target.rss_bytes(), target.cpu_seconds()
        started = time.perf_counter()
        for first in range(0, self.topics, self.at_once):
            count = min(self.at_once, self.topics - first)
            names = [f"{self.prefix}-{number}" for number in range(first, first + count)]
            connection.subscribe_all(names, 1)
            connection.close_consumers(1, count)
        seconds = time.perf_counter() - started
        cpu = target.cpu_seconds() - cpu_before
        connection.close()
        time.sleep(3.0)
        figures = {
            "topics": float(self.topics),
            "bytes per topic": (target.rss_bytes() - rss_before) / self.topics,
            "CPU per topic": cpu / self.topics * 1000,
            "topics/s": self.topics / seconds,
        }
        return Measured(figures, {})


@dataclass(frozen=True, slots=True)
class MakeHoles:
    """Acknowledge every second of `2 * holes` messages by itself."""

    topic: str
    holes: int

    def __call__(self, target: Target) -> Measured:
        template = SendTemplate(100)
        consumer, producer = Connection(target.service_url), Connection(target.service_url)
        consumer.subscribe(self.topic)
        producer.open_producer(self.topic)
        run = produce_and_consume(
            producer.hand_over(),
            consumer.hand_over(),
            template,
            window=1_000,
            entries=2 * self.holes,
            seconds=0.0,
            acks="alternate",
        )
        return Measured({"messages/s": run.entries / run.seconds}, {})


@dataclass(frozen=True, slots=True)
class RestoreHoles:
    """After a restart: from the lookup to the first message of the subscription that has the holes."""

    topic: str

    def __call__(self, target: Target) -> Measured:
        connection = Connection(target.service_url)
        cpu_before = target.cpu_seconds()
        started = time.perf_counter()
        connection.subscribe(self.topic)
        subscribed = time.perf_counter()
        connection.first_message()
        received = time.perf_counter()
        cpu = target.cpu_seconds() - cpu_before
        connection.close()
        figures = {
            "to subscribed": subscribed - started,
            "to first message": received - started,
            "server CPU": cpu,
        }
        return Measured(figures, {})
