"""Metrics of the attempts that jobs report to this broker. A repeated call counts again."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.offload.offload_pb2 import CompleteRequest
from prometheus_client import Counter, Gauge

ERRORS: Final = Counter(
    "brk_ledgeroffloader_offload_error",
    "Attempts to offload a ledger that jobs gave up.",
    ["namespace"],
    registry=REGISTRY,
)
COMPLETED: Final = Counter(
    "magnetar_offload_completed", "Ledgers that jobs offloaded and verified.", registry=REGISTRY
)
COMPLETED_BYTES: Final = Counter(
    "magnetar_offload_completed_object_bytes", "Bytes of their objects.", registry=REGISTRY
)
COMPLETED_ROWS: Final = Counter("magnetar_offload_completed_rows", "Rows in these.", registry=REGISTRY)
RAW_ENTRIES: Final = Counter(
    "magnetar_offload_raw_entries",
    "Entries among these that are kept as they are: encrypted, or not to be decoded.",
    registry=REGISTRY,
)
LAST_COMPLETED: Final = Gauge(
    "magnetar_offload_last_completed_timestamp_seconds",
    "When this broker last heard of a ledger that a job offloaded, seconds since 1970 UTC; 0: not since its "
    "start.",
    registry=REGISTRY,
)


def count_completed(request: CompleteRequest) -> None:
    """An attempt is complete."""
    COMPLETED.inc()
    LAST_COMPLETED.set_to_current_time()
    COMPLETED_BYTES.inc(request.object_bytes)
    COMPLETED_ROWS.inc(request.rows)
    RAW_ENTRIES.inc(request.raw_entries)


def count_failed(topic: TopicName) -> None:
    """An attempt was given up."""
    ERRORS.labels(namespace=str(topic.namespace)).inc()
