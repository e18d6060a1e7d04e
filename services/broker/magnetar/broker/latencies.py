"""How long messages take through this broker, over all its topics.

Publishing is timed for every run of messages, as it is anyway for each topic. What comes after is sampled: up
to a hundred times a second one entry that has just become durable is followed until it goes out, so that
nothing is added to the work for a message. A sample of a subscription that is behind ends when it gets there.
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
    "From the arrival of messages at the broker to their receipts; every entry of persistent topics.",
)
DISPATCH: Final = LatencyHistogram(
    "magnetar_dispatch_latency_seconds",
    "From an entry's being durable to its going out to a consumer, for each subscription; sampled.",
)
END_TO_END: Final = LatencyHistogram(
    "magnetar_end_to_end_latency_seconds",
    "From the publish time that a producer's clock gave a message to its going out to a consumer; sampled.",
)

SAMPLE_EVERY_S: Final = 0.01
"""Between two entries that are followed."""


class Sample:
    """One entry that is followed on its way to the consumers of one subscription."""

    __slots__ = ("_clock", "_confirmed_at", "_published_ms", "position")

    def __init__(self, position: Position, confirmed_at: float, published_ms: int, clock: Clock) -> None:
        self.position = position
        self._confirmed_at = confirmed_at
        self._published_ms = published_ms
        self._clock = clock

    def sent(self) -> None:
        """It went out, or was passed over because it is acknowledged."""
        now = self._clock.monotonic()
        DISPATCH.observe(now, max(0.0, now - self._confirmed_at))
        # Clocks of producers may be ahead of ours.
        END_TO_END.observe(now, max(0, self._clock.wall_ms() - self._published_ms) / 1000)


class Sampled(Protocol):
    """A subscription, as it is sampled."""

    def follow(self, sample: Sample) -> None:
        """Call `sent` when that entry goes out; nothing to do without a consumer or beside another sample."""
        ...


class Sampler:
    """Says when the next entry is to be followed, and follows it."""

    __slots__ = ("_next_at",)

    def __init__(self) -> None:
        self._next_at = 0.0

    def due(self, now: float) -> bool:
        """Time for another one; also when the clock is another than before."""
        return not self._next_at - SAMPLE_EVERY_S <= now < self._next_at

    def follow(self, run: Run, subscriptions: Iterable[Sampled], now: float, clock: Clock) -> None:
        """This run has just become durable: follow its first entry."""
        self._next_at = now + SAMPLE_EVERY_S
        if run.flags & RUN_MARKER:
            return
        try:
            metadata = parse_metadata(run.entries[0])
        except DataCorruption:
            return  # stored as its client sent it
        if metadata.deliver_at_time:
            return  # its producer wants it late
        sample = Sample(Position(run.ledger_id, run.first_entry_id), now, metadata.publish_time, clock)
        for subscription in subscriptions:
            subscription.follow(sample)


SAMPLER: Final = Sampler()
"""One for the process: a hundred samples a second are enough, however many topics there are."""
