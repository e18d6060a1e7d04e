"""Figures of the tail cache, under Pulsar's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from prometheus_client import Gauge


def _gauge(name: str, help_text: str) -> Gauge:
    return Gauge(name, help_text, ["cluster"], registry=REGISTRY)


_USED: Final = _gauge("pulsar_ml_cache_used_size", "Bytes in the tail cache, including its overhead.")
_ENTRIES: Final = _gauge("pulsar_ml_cache_entries", "Entries in the tail cache.")
_INSERTED: Final = _gauge("pulsar_ml_cache_inserted_entries_total", "Entries added to the tail cache.")
_EVICTED: Final = _gauge(
    "pulsar_ml_cache_evicted_entries_total", "Entries removed from the tail cache, for any reason."
)
_EVICTIONS: Final = _gauge(
    "pulsar_ml_cache_evictions", "Runs removed from the tail cache to free memory, in the last period."
)
_HITS: Final = _gauge("pulsar_ml_cache_hits_rate", "Entries read from the tail cache, per second.")
_HIT_BYTES: Final = _gauge("pulsar_ml_cache_hits_throughput", "Bytes read from the tail cache, per second.")
_MISSES: Final = _gauge("pulsar_ml_cache_misses_rate", "Entries read from storage, per second.")
_MISSED_BYTES: Final = _gauge("pulsar_ml_cache_misses_throughput", "Bytes read from storage, per second.")


class CacheFigures:
    """Publishes the figures of one cache on the metrics page; `sample` computes the rates."""

    def __init__(self, cache: EntryCache, cluster: str) -> None:
        self._cache = cache
        self._cluster = cluster
        self._sampled = (0, 0, 0, 0, 0)
        figures: tuple[tuple[Gauge, Callable[[], float]], ...] = (
            (_USED, lambda: cache.bytes),
            (_ENTRIES, lambda: cache.inserted_entries - cache.dropped_entries),
            (_INSERTED, lambda: cache.inserted_entries),
            (_EVICTED, lambda: cache.dropped_entries),
        )
        for gauge, value in figures:
            gauge.labels(cluster).set_function(value)

    def sample(self, elapsed_s: float) -> None:
        """Computes the rates over the `elapsed_s` seconds since the last call."""
        cache, reads = self._cache, self._cache.reads
        now = (
            reads.cached_entries,
            reads.cached_bytes,
            reads.stored_entries,
            reads.stored_bytes,
            cache.evictions,
        )
        hits, hit_bytes, misses, missed_bytes, evictions = (
            after - before for after, before in zip(now, self._sampled, strict=True)
        )
        self._sampled = now
        for gauge, count in (
            (_HITS, hits),
            (_HIT_BYTES, hit_bytes),
            (_MISSES, misses),
            (_MISSED_BYTES, missed_bytes),
        ):
            gauge.labels(self._cluster).set(count / elapsed_s)
        _EVICTIONS.labels(self._cluster).set(evictions)
