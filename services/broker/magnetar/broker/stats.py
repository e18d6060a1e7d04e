"""Figures of topics and subscriptions: plain counters that the hot path increments without waiting.

The path from socket to disk only adds to integers, once per run. `RateSampler` reads the counters once a
period and divides the difference by the elapsed time; Pulsar's rates are averages over its statistics period,
too. The metrics page and the admin API only read these figures.

Histograms have Pulsar's bucket bounds. Like Pulsar's, the published buckets are those of the last complete
period, each with only its own observations (they are not cumulative, in spite of the `le` in their names).
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
"""Upper bounds of `pulsar_storage_write_latency_le_*`, in ms; one more bucket counts larger values."""

ENTRY_SIZE_BOUNDS_BYTES: Final = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)
"""Upper bounds of `pulsar_entry_size_le_*`, in bytes; one more bucket counts larger values."""

SAMPLE_PERIOD_S: Final = 60.0
"""Default seconds between two samples of the counters: the averaging period of rates."""

_SLICE_TOPICS: Final = 200


@dataclass(slots=True, eq=False)
class Histogram:
    """Counts by bucket; a value that equals a bound belongs to the bucket below it."""

    bounds: tuple[float, ...]
    counts: Sequence[int] = field(init=False)
    """Observations by bucket since the start, one more than there are bounds; shared zeros until the first
    one.
    """
    total: float = 0
    """Sum of all observed values since the start."""
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
        """Adds `count` observations of one value: the entries of a run share their latency."""
        self._counting()[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def observe_lengths(self, entries: Collection[bytes]) -> None:
        """Observes the length of each entry. Costs one bucket search when all fall into the same bucket."""
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
        """Ends a period: moves the observations since the last call to `period_counts` and `period_total`."""
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
    # One tuple for all idle histograms: on a large broker, most topics are idle most of the time.
    return (0,) * length


def _rate(count: int, elapsed_s: float) -> float:
    # One zero for all idle histograms, as above.
    return count / elapsed_s if count else 0.0


def _write_latency() -> Histogram:
    return Histogram(WRITE_LATENCY_BOUNDS_MS)


def _entry_sizes() -> Histogram:
    return Histogram(ENTRY_SIZE_BOUNDS_BYTES)


@dataclass(slots=True, eq=False)
class TopicStats:
    """Counters of one topic since it was loaded. Byte counts are those of entries as the clients sent
    them.
    """

    messages_in: int = 0
    entries_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    chunked: bool = False
    """Whether a chunk of a large message was published."""
    write_latency: Histogram = field(default_factory=_write_latency)
    """Milliseconds from receiving a run to its confirmation."""
    entry_sizes: Histogram = field(default_factory=_entry_sizes)

    message_rate_in: float = 0.0
    """Messages per second, over the last complete period, like the rates below."""
    entry_rate_in: float = 0.0
    byte_rate_in: float = 0.0
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0
    period_s: float = SAMPLE_PERIOD_S
    """Seconds of that period."""
    read_entry_rate: float = 0.0
    """Entries per second read for subscriptions or by the admin API, from memory or from storage."""
    read_byte_rate: float = 0.0
    read_miss_rate: float = 0.0
    """Entries per second read from storage."""
    _sampled: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    _sampled_reads: tuple[int, int, int] = (0, 0, 0)

    def count_publish(self, run: Run) -> None:
        """Counts a published run of entries."""
        self.messages_in += run.messages
        self.entries_in += len(run.entries)
        self.bytes_in += run.byte_length
        if run.flags & RUN_CHUNK:
            self.chunked = True
        self.entry_sizes.observe_lengths(run.entries)

    def sample(self, elapsed_s: float) -> None:
        """Computes the rates over the `elapsed_s` seconds since the last call."""
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
        """Computes the read rates over the `elapsed_s` seconds since the last call."""
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
    """Chunks of large messages; each chunk is an entry."""

    message_rate_in: float = 0.0
    """Messages per second, over the last complete period, like the rates below."""
    byte_rate_in: float = 0.0
    chunk_rate: float = 0.0
    _sampled: tuple[int, int, int] = (0, 0, 0)

    def count_publish(self, run: Run) -> None:
        """Counts a run of entries that the producer published."""
        self.messages_in += run.messages
        self.bytes_in += run.byte_length
        if run.flags & RUN_CHUNK:
            self.chunks_in += len(run.entries)

    def sample(self, elapsed_s: float) -> None:
        """Computes the rates over the `elapsed_s` seconds since the last call."""
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
    """Entries acknowledged by the broker because they expired."""
    expired_at_ms: int = 0
    """Time of the last expiry, in ms since 1970 UTC."""
    throttled: dict[tuple[str, str], int] | None = None
    """Number of delivery pauses by (scope of the dispatch rate, "messages" or "bytes")."""
    chunks_out: int = 0
    """Chunks of large messages, each an entry; counted for consumers only."""

    message_rate_out: float = 0.0
    """Messages per second, over the last complete period, like the rates below."""
    byte_rate_out: float = 0.0
    redelivery_rate: float = 0.0
    ack_rate: float = 0.0
    expired_rate: float = 0.0
    chunk_rate: float = 0.0
    _sampled: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0)

    def count_throttled(self, scope: str, unit: str) -> None:
        """Counts a delivery pause caused by an exhausted dispatch rate."""
        if self.throttled is None:
            self.throttled = {}
        self.throttled[scope, unit] = self.throttled.get((scope, unit), 0) + 1

    def times_throttled(self, scope: str, unit: str) -> int:
        return 0 if self.throttled is None else self.throttled.get((scope, unit), 0)

    def sample(self, elapsed_s: float) -> None:
        """Computes the rates over the `elapsed_s` seconds since the last call."""
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
    """Computes rates from counters once a period, for a slice of topics per turn of the event loop."""

    def __init__(
        self,
        topics: Callable[[], Sequence[_Topic]],
        clock: Clock,
        period_s: float = SAMPLE_PERIOD_S,
        also: Callable[[float], None] = lambda elapsed_s: None,
    ) -> None:
        """Builds a sampler; each function in `also` is called once per period, too."""
        self._topics = topics
        self._clock = clock
        self._period_s = period_s
        self._also = also
        self._sampled_at = clock.monotonic()

    async def run(self) -> None:
        """Samples until it is cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            await self.sample()

    async def sample(self) -> None:
        """Takes one sample of every loaded topic."""
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
