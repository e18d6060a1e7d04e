"""Figures of topics and subscriptions: plain counters that the hot path adds to without waiting.

The path from socket to disk only adds to integers, once per run. Rates are not kept by it: `RateSampler`
looks at the counters once a minute and divides the difference by the time, as Pulsar's own rates are averages
over its statistics period. The metrics page and the admin API read all of this and write nothing.

Histograms have Pulsar's bucket bounds. Like Pulsar's, the published buckets are those of the last complete
period, each holding only its own observations (they are not cumulative, in spite of the `le` in their names).
"""

from __future__ import annotations

import asyncio
import functools
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts

WRITE_LATENCY_BOUNDS_MS: Final = (0.5, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 1000.0)
"""Upper bounds of `pulsar_storage_write_latency_le_*`, ms; one more bucket holds what is above."""

ENTRY_SIZE_BOUNDS_BYTES: Final = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)
"""Upper bounds of `pulsar_entry_size_le_*`, bytes; one more bucket holds what is above."""

SAMPLE_PERIOD_S: Final = 60.0
"""Between two samples of the counters, unless told otherwise: the time that rates are averages over."""

_SLICE_TOPICS: Final = 200


@dataclass(slots=True, eq=False)
class Histogram:
    """Counts by bucket; a value that equals a bound belongs to the bucket below it."""

    bounds: tuple[float, ...]
    counts: Sequence[int] = field(init=False)
    """Observations since the start, one count more than there are bounds; shared zeros until the first."""
    total: float = 0
    """The sum of all observed values since the start."""
    period_counts: tuple[int, ...] = field(init=False)
    """Observations of the last complete period."""
    period_total: float = 0
    _sampled_counts: tuple[int, ...] = field(init=False)
    _sampled_total: float = 0

    def __post_init__(self) -> None:
        nothing = _zeros(len(self.bounds) + 1)
        self.counts = nothing
        self.period_counts = nothing
        self._sampled_counts = nothing

    def observe(self, value: float, count: int = 1) -> None:
        """`count` observations of the same value: the entries of a run share their latency."""
        self._counting()[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def observe_lengths(self, entries: Collection[bytes]) -> None:
        """The length of each entry. Costs one bucket search when all fall into the same bucket."""
        lengths = list(map(len, entries))
        if not lengths:
            return
        self.total += sum(lengths)
        bounds, counts = self.bounds, self._counting()
        lowest = bisect_left(bounds, min(lengths))
        if lowest == bisect_left(bounds, max(lengths)):
            counts[lowest] += len(lengths)
            return
        for length in lengths:
            counts[bisect_left(bounds, length)] += 1

    def _counting(self) -> list[int]:
        counts = self.counts
        if not isinstance(counts, list):
            counts = self.counts = list(counts)
        return counts

    def sample(self) -> None:
        """End a period: what was observed since the last call becomes `period_counts`, `period_total`."""
        counts = tuple(self.counts)
        if counts == self._sampled_counts:
            self.period_counts = _zeros(len(counts))
            self.period_total = 0
            return
        before = self._sampled_counts
        self.period_counts = tuple(now - then for now, then in zip(counts, before, strict=True))
        self.period_total = self.total - self._sampled_total
        self._sampled_counts = counts
        self._sampled_total = self.total


@functools.cache
def _zeros(length: int) -> tuple[int, ...]:
    # One tuple for all idle histograms: most topics of a big broker are idle most of the time.
    return (0,) * length


def _rate(count: int, elapsed_s: float) -> float:
    # One zero for all that is idle, as above.
    return count / elapsed_s if count else 0.0


def _write_latency() -> Histogram:
    return Histogram(WRITE_LATENCY_BOUNDS_MS)


def _entry_sizes() -> Histogram:
    return Histogram(ENTRY_SIZE_BOUNDS_BYTES)


@dataclass(slots=True, eq=False)
class TopicStats:
    """Counters of one topic since it was loaded. Bytes are those of entries as the clients sent them."""

    messages_in: int = 0
    entries_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    chunked: bool = False
    """A chunk of a large message was published."""
    write_latency: Histogram = field(default_factory=_write_latency)
    """From taking a run to its confirmation, in ms."""
    entry_sizes: Histogram = field(default_factory=_entry_sizes)

    message_rate_in: float = 0.0
    """Per second, over the last complete period, like the rates below."""
    entry_rate_in: float = 0.0
    byte_rate_in: float = 0.0
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0
    period_s: float = SAMPLE_PERIOD_S
    """How long that period was."""
    read_entry_rate: float = 0.0
    """Entries read for subscriptions or to be looked at, from memory or from storage."""
    read_byte_rate: float = 0.0
    read_miss_rate: float = 0.0
    """Entries that had to come from storage."""
    _sampled: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    _sampled_reads: tuple[int, int, int] = (0, 0, 0)

    def count_publish(self, run: Run) -> None:
        """A run of entries was taken."""
        self.messages_in += run.messages
        self.entries_in += len(run.entries)
        self.bytes_in += run.byte_length
        if run.flags & RUN_CHUNK:
            self.chunked = True
        self.entry_sizes.observe_lengths(run.entries)

    def sample(self, elapsed_s: float) -> None:
        """Compute the rates over the `elapsed_s` since the last call."""
        self.period_s = elapsed_s
        messages, entries, size, messages_out, size_out = self._sampled
        self.message_rate_in = _rate(self.messages_in - messages, elapsed_s)
        self.entry_rate_in = _rate(self.entries_in - entries, elapsed_s)
        self.byte_rate_in = _rate(self.bytes_in - size, elapsed_s)
        self.message_rate_out = _rate(self.messages_out - messages_out, elapsed_s)
        self.byte_rate_out = _rate(self.bytes_out - size_out, elapsed_s)
        sampled = (self.messages_in, self.entries_in, self.bytes_in, self.messages_out, self.bytes_out)
        if sampled != self._sampled:
            self._sampled = sampled
        self.write_latency.sample()
        self.entry_sizes.sample()

    def sample_reads(self, reads: ReadCounts, elapsed_s: float) -> None:
        """The same for what was read."""
        entries, size, missed = self._sampled_reads
        sampled = (
            reads.cached_entries + reads.stored_entries,
            reads.cached_bytes + reads.stored_bytes,
            reads.stored_entries,
        )
        self.read_entry_rate = _rate(sampled[0] - entries, elapsed_s)
        self.read_byte_rate = _rate(sampled[1] - size, elapsed_s)
        self.read_miss_rate = _rate(sampled[2] - missed, elapsed_s)
        if sampled != self._sampled_reads:
            self._sampled_reads = sampled


@dataclass(slots=True, eq=False)
class ProducerStats:
    """Counters of one producer since it connected."""

    messages_in: int = 0
    bytes_in: int = 0
    chunks_in: int = 0
    """Chunks of large messages, each an entry."""

    message_rate_in: float = 0.0
    """Per second, over the last complete period, like the rates below."""
    byte_rate_in: float = 0.0
    chunk_rate: float = 0.0
    _sampled: tuple[int, int, int] = (0, 0, 0)

    def count_publish(self, run: Run) -> None:
        """A run of entries was taken from it."""
        self.messages_in += run.messages
        self.bytes_in += run.byte_length
        if run.flags & RUN_CHUNK:
            self.chunks_in += len(run.entries)

    def sample(self, elapsed_s: float) -> None:
        """Compute the rates over the `elapsed_s` since the last call."""
        messages, size, chunks = self._sampled
        self.message_rate_in = _rate(self.messages_in - messages, elapsed_s)
        self.byte_rate_in = _rate(self.bytes_in - size, elapsed_s)
        self.chunk_rate = _rate(self.chunks_in - chunks, elapsed_s)
        sampled = (self.messages_in, self.bytes_in, self.chunks_in)
        if sampled != self._sampled:
            self._sampled = sampled


@dataclass(slots=True, eq=False)
class SubscriptionStats:
    """Counters of one subscription since its topic was loaded, or of one consumer since it connected."""

    messages_out: int = 0
    bytes_out: int = 0
    messages_redelivered: int = 0
    acks: int = 0
    """Messages acknowledged by consumers (a batch counts by its messages)."""
    messages_expired: int = 0
    """Entries that count as acknowledged because they expired."""
    expired_at_ms: int = 0
    """When entries last did; ms since 1970 UTC."""
    throttled: dict[tuple[str, str], int] | None = None
    """By (whose rate, "messages" or "bytes"): times that nothing went out for a while because of it."""
    chunks_out: int = 0
    """Chunks of large messages, each an entry; counted for consumers only."""

    message_rate_out: float = 0.0
    """Per second, over the last complete period, like the rates below."""
    byte_rate_out: float = 0.0
    redelivery_rate: float = 0.0
    ack_rate: float = 0.0
    expired_rate: float = 0.0
    chunk_rate: float = 0.0
    _sampled: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)

    def count_throttled(self, scope: str, unit: str) -> None:
        """A dispatch rate was used up."""
        if self.throttled is None:
            self.throttled = {}
        self.throttled[scope, unit] = self.throttled.get((scope, unit), 0) + 1

    def times_throttled(self, scope: str, unit: str) -> int:
        return 0 if self.throttled is None else self.throttled.get((scope, unit), 0)

    def sample(self, elapsed_s: float) -> None:
        """Compute the rates over the `elapsed_s` since the last call."""
        messages, size, redelivered, acks, expired, chunks = self._sampled
        self.message_rate_out = _rate(self.messages_out - messages, elapsed_s)
        self.byte_rate_out = _rate(self.bytes_out - size, elapsed_s)
        self.redelivery_rate = _rate(self.messages_redelivered - redelivered, elapsed_s)
        self.ack_rate = _rate(self.acks - acks, elapsed_s)
        self.expired_rate = _rate(self.messages_expired - expired, elapsed_s)
        self.chunk_rate = _rate(self.chunks_out - chunks, elapsed_s)
        sampled = (
            self.messages_out,
            self.bytes_out,
            self.messages_redelivered,
            self.acks,
            self.messages_expired,
            self.chunks_out,
        )
        if sampled != self._sampled:
            self._sampled = sampled


class _Producer(Protocol):
    @property
    def stats(self) -> ProducerStats: ...


class _Consumer(Protocol):
    @property
    def stats(self) -> SubscriptionStats: ...


class _Subscription(Protocol):
    @property
    def stats(self) -> SubscriptionStats: ...

    @property
    def consumers(self) -> Sequence[_Consumer]: ...


class _Topic(Protocol):
    @property
    def stats(self) -> TopicStats: ...

    @property
    def producers(self) -> Mapping[str, _Producer]: ...

    @property
    def subscriptions(self) -> Mapping[str, _Subscription]: ...

    @property
    def read_counts(self) -> ReadCounts | None: ...


class RateSampler:
    """Turns counters into rates, once a period, a slice of topics per turn of the event loop."""

    def __init__(
        self,
        topics: Callable[[], Sequence[_Topic]],
        clock: Clock,
        period_s: float = SAMPLE_PERIOD_S,
        also: Callable[[float], None] = lambda elapsed_s: None,
    ) -> None:
        """`also` is told of each period, too."""
        self._topics = topics
        self._clock = clock
        self._period_s = period_s
        self._also = also
        self._sampled_at = clock.monotonic()

    async def run(self) -> None:
        """Sample for ever; ends by cancellation."""
        while True:
            await asyncio.sleep(self._period_s)
            await self.sample()

    async def sample(self) -> None:
        """One sample of every topic that is loaded now."""
        now = self._clock.monotonic()
        elapsed_s = now - self._sampled_at
        if elapsed_s <= 0:
            return
        self._sampled_at = now
        self._also(elapsed_s)
        for index, topic in enumerate(self._topics()):
            if index % _SLICE_TOPICS == _SLICE_TOPICS - 1:
                await asyncio.sleep(0)
            topic.stats.sample(elapsed_s)
            reads = topic.read_counts
            if reads is not None:
                topic.stats.sample_reads(reads, elapsed_s)
            for producer in topic.producers.values():
                producer.stats.sample(elapsed_s)
            for subscription in topic.subscriptions.values():
                subscription.stats.sample(elapsed_s)
                for consumer in subscription.consumers:
                    consumer.stats.sample(elapsed_s)
