"""Latencies of messages through this broker, over all topics.

Publish latency is measured for every run of messages, which costs nothing extra. Delivery latency is sampled:
up to a hundred times a second, one entry that has just become durable is followed until it is sent, so no
work is added per message. A sample of a subscription with a backlog ends when the subscription reaches the
entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.obs.latency import LatencyHistogram
from magnetar.common.runtime.clock import Clock
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.ledger_store import RUN_MARKER, Run

PUBLISH: Final = LatencyHistogram(
    "magnetar_publish_latency_seconds",
    "Time from receiving messages to sending their receipts; every entry of persistent topics.",
)
DISPATCH: Final = LatencyHistogram(
    "magnetar_dispatch_latency_seconds",
    "Time from an entry becoming durable to sending it to a consumer, for each subscription; sampled.",
)
END_TO_END: Final = LatencyHistogram(
    "magnetar_end_to_end_latency_seconds",
    "Time from the publish time in the producer's metadata to sending the message to a consumer; sampled.",
)

SAMPLE_EVERY_S: Final = 0.01
"""Seconds between two sampled entries."""


class Sample:
    """A sampled entry on its way to the consumers of one subscription."""

    __slots__ = ("_clock", "_confirmed_at", "_published_ms", "position")

    def __init__(self, position: Position, confirmed_at: float, published_ms: int, clock: Clock) -> None:
        self.position = position
        self._confirmed_at = confirmed_at
        self._published_ms = published_ms
        self._clock = clock

    def sent(self) -> None:
        """Records that the entry was sent, or skipped because it is acknowledged."""
        now = self._clock.monotonic()
        DISPATCH.observe(now, max(0.0, now - self._confirmed_at))
        # Producers' clocks may be ahead of the broker's.
        END_TO_END.observe(now, max(0, self._clock.wall_ms() - self._published_ms) / 1000)


class Sampled(Protocol):
    """A subscription whose deliveries can be sampled."""

    def follow(self, sample: Sample) -> None:
        """Calls `sample.sent` when that entry is sent; ignored without a consumer or while another sample
        runs.
        """
        ...


class Sampler:
    """Decides when to sample an entry, and starts the sample."""

    __slots__ = ("_next_at",)

    def __init__(self) -> None:
        self._next_at = 0.0

    def due(self, now: float) -> bool:
        """Whether the next sample is due; also true after a change of clock."""
        return not self._next_at - SAMPLE_EVERY_S <= now < self._next_at

    def follow(self, run: Run, subscriptions: Iterable[Sampled], now: float, clock: Clock) -> None:
        """Samples the first entry of a run that has just become durable."""
        self._next_at = now + SAMPLE_EVERY_S
        if run.flags & RUN_MARKER:
            return
        try:
            metadata = parse_metadata(run.entries[0])
        except DataCorruption:
            return  # stored in the client's format
        if metadata.deliver_at_time:
            return  # delayed by its producer
        sample = Sample(Position(run.ledger_id, run.first_entry_id), now, metadata.publish_time, clock)
        for subscription in subscriptions:
            subscription.follow(sample)


SAMPLER: Final = Sampler()
"""Sampler of the process: a hundred samples a second are enough for any number of topics."""
