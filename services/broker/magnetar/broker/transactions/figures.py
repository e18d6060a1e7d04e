"""Counters of transaction coordinators, by Pulsar's names."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from magnetar.common.naming.txn_id import Action
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Gauge

LATENCY_BOUNDS_MS: Final = (
    10,
    20,
    50,
    100,
    500,
    1_000,
    5_000,
    15_000,
    30_000,
    60_000,
    300_000,
    1_500_000,
    3_000_000,
)
"""Upper bounds of the buckets of a transaction's time from begin to end; one more bucket has the rest."""

_LABELS: Final = ["cluster", "coordinator_id"]

_ACTIVE: Final = Gauge(
    "pulsar_txn_active_count",
    "Unfinished transactions of a coordinator: open ones, and those whose end is under way.",
    _LABELS,
    registry=REGISTRY,
)
_CREATED: Final = Counter(
    "pulsar_txn_created", "Transactions that a coordinator began.", _LABELS, registry=REGISTRY
)
_COMMITTED: Final = Counter(
    "pulsar_txn_committed",
    "Transactions that were committed in every topic that took part.",
    _LABELS,
    registry=REGISTRY,
)
_ABORTED: Final = Counter(
    "pulsar_txn_aborted",
    "Transactions that were aborted in every topic that took part.",
    _LABELS,
    registry=REGISTRY,
)
_TIMED_OUT: Final = Counter(
    "pulsar_txn_timeout",
    "Transactions that a coordinator aborted because their time was over.",
    _LABELS,
    registry=REGISTRY,
)
_APPENDS: Final = Counter(
    "pulsar_txn_append_log",
    "Changes of transactions that a coordinator wrote to its log.",
    _LABELS,
    registry=REGISTRY,
)
_LATENCIES: Final = [
    *(
        Gauge(
            f"pulsar_txn_execution_latency_le_{bound}",
            f"Finished transactions that took at most {bound} ms and more than the bucket below.",
            _LABELS,
            registry=REGISTRY,
        )
        for bound in LATENCY_BOUNDS_MS
    ),
    Gauge(
        "pulsar_txn_execution_latency_le_overflow",
        f"Finished transactions that took more than {LATENCY_BOUNDS_MS[-1]} ms.",
        _LABELS,
        registry=REGISTRY,
    ),
]
_OLDEST: Final = Gauge(
    "magnetar_txn_oldest_seconds",
    "Age of the oldest unfinished transaction of a coordinator; 0 without any.",
    _LABELS,
    registry=REGISTRY,
)
_UNCONFIRMED_ENDS: Final = Gauge(
    "magnetar_txn_unconfirmed_ends",
    "Topics that have not confirmed the end of a transaction of a coordinator yet.",
    _LABELS,
    registry=REGISTRY,
)
_END_RETRIES: Final = Counter(
    "magnetar_txn_end_retries",
    "Ends of transactions in topics that failed and are retried.",
    _LABELS,
    registry=REGISTRY,
)
_CONTRADICTIONS: Final = Counter(
    "magnetar_txn_end_contradictions",
    "Topics that had ended a transaction with another action than its coordinator: a broken invariant.",
    _LABELS,
    registry=REGISTRY,
)


class CoordinatorFigures:
    """The counters of one coordinator."""

    __slots__ = (
        "_aborted",
        "_appends",
        "_committed",
        "_labels",
        "_latencies",
        "_seen_changes",
        "active",
        "contradictions",
        "created",
        "end_retries",
        "oldest",
        "timed_out",
        "unconfirmed_ends",
    )

    def __init__(self, cluster: str, coordinator_id: int) -> None:
        labels = self._labels = (cluster, str(coordinator_id))
        self.active = _ACTIVE.labels(*labels)
        self.oldest = _OLDEST.labels(*labels)
        self.created = _CREATED.labels(*labels)
        self.timed_out = _TIMED_OUT.labels(*labels)
        self.unconfirmed_ends = _UNCONFIRMED_ENDS.labels(*labels)
        self.end_retries = _END_RETRIES.labels(*labels)
        self.contradictions = _CONTRADICTIONS.labels(*labels)
        self._committed = _COMMITTED.labels(*labels)
        self._aborted = _ABORTED.labels(*labels)
        self._appends = _APPENDS.labels(*labels)
        self._latencies = [each.labels(*labels) for each in _LATENCIES]
        self._seen_changes = 0

    def ended(self, action: Action, duration_ms: float) -> None:
        """Counts a finished transaction that took `duration_ms` since its begin."""
        (self._committed if action is Action.COMMIT else self._aborted).inc()
        self._latencies[bisect_left(LATENCY_BOUNDS_MS, duration_ms)].inc()

    def log_has(self, changes: int) -> None:
        """Counts the log's changes since the takeover, given their number so far."""
        self._appends.inc(changes - self._seen_changes)
        self._seen_changes = changes

    def close(self) -> None:
        """Removes the gauges of what the coordinator has now; it is elsewhere from here on."""
        _ACTIVE.remove(*self._labels)
        _OLDEST.remove(*self._labels)
        _UNCONFIRMED_ENDS.remove(*self._labels)
