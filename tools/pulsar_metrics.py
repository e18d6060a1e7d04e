"""Which of Pulsar's and BookKeeper's metrics are not here, each with a reason: docs/metrics.md lists them."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).resolve().parent / "pulsar_metrics.tsv"
"""Metrics of Pulsar 4.0.7: name, type and labels by line."""

WHY: Final[tuple[tuple[str, str], ...]] = (
    (
        r"pulsar_txn_.*_bufferedwriter_.*",
        "all records of one turn are one append: nothing waits for a batch to fill",
    ),
    (r"pulsar_txn_tb_client_pending_requests", "`magnetar_txn_unconfirmed_ends`"),
    (r"pulsar_resource_group_.*", "there are no resource groups"),
    (
        r"pulsar_ml_cache_pool_.*|pulsar_lb_directMemory_usage",
        "there is no memory besides the process's own: `process_resident_memory_bytes`, "
        "`magnetar_memory_budget_bytes`",
    ),
    (r"pulsar_ml_cache_pendingreads_.*", "each subscription reads for itself, and one read at a time"),
    (
        r"pulsar_ml_reads_.*inflight_bytes",
        'reads have a part in one budget: `magnetar_memory_budget_bytes{holder="reads"}`',
    ),
    (r"pulsar_ml_AddEntryErrors", "`magnetar_refused_messages_total` says which, by code"),
    (
        r"pulsar_ml_ReadEntries(Errors|Succeeded)",
        "`magnetar_quorum_reads_failed_total`, `magnetar_managed_ledger_unreadable_entries_total`, "
        "`magnetar_cold_reads_failed_total`",
    ),
    (
        r"pulsar_ml_LedgerAddEntryLatencyBuckets(_OVERFLOW)?|pulsar_storage_ledger_write_latency_.*",
        "the time in storage alone: `magnetar_storage_write_latency_seconds`, of the whole broker",
    ),
    (
        r"pulsar_ml_LedgerSwitchLatencyBuckets(_OVERFLOW)?",
        "the next ledger is created ahead of time: no publish waits for the switch",
    ),
    (
        r"pulsar_ml_MarkDeleteRate",
        "acknowledgements of a topic go to disk together, once a second: `magnetar_acks_at_risk`",
    ),
    (
        r"pulsar_ml_AddEntryWithReplicasBytesRate",
        "`pulsar_ml_AddEntryBytesRate` times the write quorum; `bookie_WRITE_BYTES` counts copies",
    ),
    (
        r"pulsar_broker_load_manager_bundle_assigment",
        "`magnetar_load_assignments_total`, and its time is part of `pulsar_broker_lookup`",
    ),
    (
        r"pulsar_broker_lookup_redirects_total",
        "a lookup is never redirected: every broker answers with the owner",
    ),
    (
        r"pulsar_broker_pending_bytes_to_dispatch",
        '`magnetar_memory_budget_bytes{holder="output"}`',
    ),
    (
        r"pulsar_broker_throttled_connections",
        "`pulsar_publish_rate_limit_times`, by topic",
    ),
    (
        r"pulsar_connection_create_(fail|success)_count",
        "`pulsar_connection_created_total_count`, `magnetar_refused_connections_total`, "
        "`magnetar_protocol_errors_total`",
    ),
    (
        r"pulsar_storage_backlog_quota_.*",
        "by broker: `pulsar_broker_storage_backlog_quota_exceeded_evictions_total`, "
        "`magnetar_backlog_quota_disconnected_producers_total`; limits are in the admin API",
    ),
    (
        r"pulsar_subscription_delayed_message_index_size_bytes",
        "all subscriptions share one index: `pulsar_delayed_message_index_size_bytes`",
    ),
    (r"pulsar_subscription_filter_.*", "there are no entry filters"),
    (
        r"pulsar_topic_load_(time_.*|rate_s|failed_count)",
        "the summary says the same: `pulsar_topic_load_times`, `topic_load_failed_total`",
    ),
    (
        r"bookie_entries_count",
        "counting them would mean to read every index: `bookie_ledgers_count`, `magnetar_log_live_bytes`",
    ),
    (
        r"bookie_read_cache_(size|hits|misses)",
        "the operating system caches what is read; of indexes there is `magnetar_log_index_cache_bytes`",
    ),
    (
        r"bookie_journal_JOURNAL_CB_QUEUE_SIZE|bookkeeper_server_BookieReadThreadPool_queue_0",
        "there are no such queues; `magnetar_event_loop_lag_seconds` rises when work waits",
    ),
    (
        r"bookie_DELETED_LEDGER_(COUNT|TOTAL)",
        "`magnetar_log_dead_bytes`, `bookie_RECLAIMED_DELETION_SPACE_BYTES`",
    ),
    (r"bookie_(MINOR|MAJOR)_COMPACTION_(COUNT|TOTAL)", "there is one kind: `magnetar_log_compactions_total`"),
)
"""By patterns of whole names."""


def recorded() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels of each, by name; empty where they are not known."""
    found = {}
    for line in RECORDED.read_text().splitlines():
        if line and not line.startswith("#"):
            name, kind, labels = (*line.split("\t"), "", "")[:3]
            found[name] = kind, frozenset(filter(None, labels.split(",")))
    return found


def why(name: str) -> str | None:
    """Return why a metric does not exist; None without a recorded reason."""
    return next((reason for pattern, reason in WHY if re.fullmatch(pattern, name)), None)


def absences(shown: Collection[str]) -> list[tuple[str, str]]:
    """(name, reason) of what is not shown. Raises SystemExit where there is no reason."""
    missing = [name for name in recorded() if name not in shown]
    unexplained = [name for name in missing if why(name) is None]
    if unexplained:
        raise SystemExit("metrics of Pulsar that are neither here nor explained: " + ", ".join(unexplained))
    return [(name, str(why(name))) for name in missing]
