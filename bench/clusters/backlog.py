"""Catch-up reads: a backlog is published, and read by another process after the cluster was restarted."""

from __future__ import annotations

from dataclasses import dataclass

from bench.connection import connect
from bench.frames import SendTemplate
from bench.generator import consume, produce
from bench.loads import Measured
from bench.target import Target


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages of a topic with a subscription that none of its consumers has taken."""

    topic: str
    size: int
    entries: int
    batch: int

    def __call__(self, target: Target) -> Measured:
        """Publish it."""
        keeper, producer = connect(target), connect(target)
        keeper.subscribe(self.topic)
        keeper.close()
        producer.open_producer(self.topic)
        window = 1_000 if self.batch == 1 else 100
        template = SendTemplate(self.size, self.batch)
        produce(producer.hand_over_any(), template, window=window, entries=self.entries)
        return Measured({}, {})


@dataclass(frozen=True, slots=True)
class CatchUp:
    """One Exclusive consumer takes a backlog and acknowledges cumulatively."""

    backlog: Backlog

    def __call__(self, target: Target) -> Measured:
        template = SendTemplate(self.backlog.size, self.backlog.batch)
        consumer = connect(target)
        consumer.subscribe(self.backlog.topic)
        cpu_before = target.cpu_seconds()
        run = consume(consumer.hand_over_any(), template, entries=self.backlog.entries, acks="cumulative")
        cpu = target.cpu_seconds() - cpu_before
        messages = run.entries * template.messages
        figures = {
            "entries": run.entries,
            "messages/s": messages / run.seconds,
            "MB/s": run.entries * template.payload_bytes / run.seconds / 1e6,
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})
