"""Metrics of the attempts that jobs report to this broker. A repeated call is counted again."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.offload.offload_pb2 import CompleteRequest
from prometheus_client import Counter, Gauge

ERRORS: Final = Counter(
    "brk_ledgeroffloader_offload_error",
    "Offload attempts that jobs have given up.",
    ["namespace"],
    registry=REGISTRY,
)
COMPLETED: Final = Counter(
    "magnetar_offload_completed", "Ledgers that jobs offloaded and verified.", registry=REGISTRY
)
COMPLETED_BYTES: Final = Counter(
    "magnetar_offload_completed_object_bytes", "Bytes of the objects of offloaded ledgers.", registry=REGISTRY
)
COMPLETED_ROWS: Final = Counter(
    "magnetar_offload_completed_rows", "Rows in the objects of offloaded ledgers.", registry=REGISTRY
)
RAW_ENTRIES: Final = Counter(
    "magnetar_offload_raw_entries",
    "Entries among these that are stored verbatim: encrypted, or impossible to decode.",
    registry=REGISTRY,
)
LAST_COMPLETED: Final = Gauge(
    "magnetar_offload_last_completed_timestamp_seconds",
    "Time of the last report of an offloaded ledger to this broker, seconds since 1970 UTC; 0: none "
    "since its start.",
    registry=REGISTRY,
)


def count_completed(request: CompleteRequest) -> None:
    """Counts a completed attempt."""
    COMPLETED.inc()
    LAST_COMPLETED.set_to_current_time()
    COMPLETED_BYTES.inc(request.object_bytes)
    COMPLETED_ROWS.inc(request.rows)
    RAW_ENTRIES.inc(request.raw_entries)


def count_failed(topic: TopicName) -> None:
    """Counts a failed attempt."""
    ERRORS.labels(namespace=str(topic.namespace)).inc()
