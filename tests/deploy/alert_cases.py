"""When each alert fires: series made up for it, the last minute at which it is quiet, and the first it fires.

What goes wrong does so at minute 10, where nothing else is said: an alert that waits 2 minutes is quiet at 11
and fires at 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.deploy.alert_series import (
    BOOKIE,
    BROKER,
    CLUSTER,
    DISCOVERY,
    ETCD,
    LONG,
    SUBSCRIPTION,
    TOPIC,
    appears,
    ends,
    name,
    of,
    rises,
    steady,
    turns,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One alert, what it is about, and when it has to fire."""

    alert: str
    series: Mapping[str, str]
    quiet_min: int
    fires_min: int
    labels: Mapping[str, str]
    """Those of the alert, but for its name and severity."""


def one(alert: str, labels: Mapping[str, str], metric: str, values: str, quiet: int, **more: str) -> Case:
    """An alert about a single series, which has all of its labels; it fires a minute after `quiet`."""
    every = {**labels, **more}
    return Case(alert, {name(metric, every): values}, quiet, quiet + 1, every)


def slow(
    alert: str, labels: Mapping[str, str], histogram: str, limit_s: float, told: Mapping[str, str]
) -> Case:
    """All observations of a histogram lie above the limit, for longer than 10 minutes."""
    metric = f"{histogram}_bucket"
    series = {
        name(metric, labels, le=f"{limit_s:g}"): steady(0),
        name(metric, labels, le=f"{4 * limit_s:g}"): f"0+60x{LONG}",
        name(metric, labels, le="+Inf"): f"0+60x{LONG}",
    }
    return Case(alert, series, 10, 12, told)


def all_down(alert: str, job: str) -> Case:
    """The one goes at minute 5, the other at minute 10."""
    series = {
        name("up", of(job, "first")): turns(1, 0, 5),
        name("up", of(job, "second")): turns(1, 0),
    }
    return Case(alert, series, 10, 11, CLUSTER)


AVAILABILITY: Final = (
    Case("MagnetarTargetsMissing", {name("up", BOOKIE): steady(1)}, 9, 10, {"job": "broker"}),
    one("MagnetarBrokerDown", BROKER, "up", turns(1, 0), 11),
    all_down("MagnetarNoBrokers", "broker"),
    Case(  # whose pods are gone, and with them the targets
        "MagnetarNoBrokers",
        {name("up", BOOKIE): steady(1), name("up", BROKER): ends(1)},
        10,
        11,
        CLUSTER,
    ),
    one("MagnetarBrokerNotRegistered", BROKER, "magnetar_broker_registered", turns(1, 0), 11),
    Case(
        "MagnetarNoLoadLeader",
        {
            name("magnetar_load_leader", of("broker", "first")): turns(1, 0),
            name("magnetar_load_leader", of("broker", "second")): steady(0),
        },
        14,
        15,
        CLUSTER,
    ),
    one("MagnetarBookieDown", BOOKIE, "up", turns(1, 0), 11),
    Case(
        "MagnetarTooFewBookies",
        {
            name("up", of("bookie", "first")): turns(1, 0, 5),
            name("up", of("bookie", "second")): turns(1, 0),
            name("up", of("bookie", "third")): steady(1),
        },
        10,
        11,
        CLUSTER,
    ),
    one("MagnetarBookieNotRegistered", BOOKIE, "magnetar_bookie_registered", turns(1, 0), 14),
    one("MagnetarBookieReadOnly", BOOKIE, "bookie_SERVER_STATUS", turns(1, 0), 14),
    Case(
        "MagnetarTooFewWritableBookies",
        {
            **{name("magnetar_bookie_registered", of("bookie", each)): steady(1) for each in "abc"},
            **{name("bookie_SERVER_STATUS", of("bookie", each)): steady(1) for each in "ab"},
            name("bookie_SERVER_STATUS", of("bookie", "c")): turns(1, 0),
        },
        21,
        22,
        CLUSTER,
    ),
    Case(  # all of whose pods are gone
        "MagnetarTooFewWritableBookies",
        {
            name("magnetar_broker_registered", BROKER): steady(1),
            **{name("magnetar_bookie_registered", of("bookie", each)): ends(1) for each in "abc"},
            **{name("bookie_SERVER_STATUS", of("bookie", each)): ends(1) for each in "abc"},
        },
        11,
        12,
        CLUSTER,
    ),
    one("MagnetarDiscoveryDown", DISCOVERY, "up", turns(1, 0), 11),
    all_down("MagnetarNoDiscovery", "discovery"),
    one("MagnetarDiscoveryMetadataStale", DISCOVERY, "magnetar_discovery_metadata_answers", turns(1, 0), 11),
    one(
        "MagnetarProcessRestarting",
        BOOKIE,
        "process_start_time_seconds",
        f"100+0x9 200+0x4 300+0x4 400+0x{LONG}",
        19,
    ),
    Case(
        "MagnetarVersionsDiffer",
        {
            name("pulsar_version_info", of("broker", "first"), version="1.0"): steady(1),
            name("pulsar_version_info", of("broker", "second"), version="1.1"): appears(1),
        },
        369,
        370,
        CLUSTER,
    ),
)

METADATA: Final = (
    one("MagnetarEtcdMemberDown", ETCD, "up", turns(1, 0), 11),
    Case(
        "MagnetarMetadataUnavailable",
        {name("up", ETCD): steady(1), name("etcd_server_has_leader", ETCD): turns(1, 0)},
        10,
        11,
        CLUSTER,
    ),
    Case(  # an etcd that Prometheus does not know
        "MagnetarMetadataUnavailable",
        {
            name("magnetar_discovery_metadata_answers", of("discovery", "first")): turns(1, 0, 5),
            name("magnetar_discovery_metadata_answers", of("discovery", "second")): turns(1, 0),
        },
        10,
        11,
        CLUSTER,
    ),
    slow(
        "MagnetarEtcdSlow",
        ETCD,
        "etcd_disk_wal_fsync_duration_seconds",
        0.5,
        {**CLUSTER, "instance": "etcd-1"},
    ),
    Case(
        "MagnetarEtcdNearQuota",
        {
            name("etcd_mvcc_db_total_size_in_bytes", ETCD): turns(7e8, 9e8),
            name("etcd_server_quota_backend_bytes", ETCD): steady(1e9),
        },
        19,
        20,
        ETCD,
    ),
    one(
        "MagnetarMetadataWatchFailing", BROKER, "magnetar_watch_failures_total", rises(60), 19, watch="owners"
    ),
)

DATA: Final = (
    one("MagnetarDamagedData", BOOKIE, "magnetar_scrub_findings_total", turns(0, 3), 9, finding="damaged"),
    Case(  # counted by a start, which was first scraped after it; the process before it had counted as many
        "MagnetarDamagedData",
        {
            name("magnetar_log_damaged_records_total", BOOKIE): f"1+0x4 _x99 1+0x{LONG}",
            name("process_start_time_seconds", BOOKIE): f"-86400+0x4 _x99 6200+0x{LONG}",
        },
        103,
        104,
        BOOKIE,
    ),
    one("MagnetarConflictingEntries", BOOKIE, "magnetar_bookie_conflicting_entries_total", turns(0, 1), 9),
    Case(
        "MagnetarUnderReplicatedLedgers",
        {name("auditor_NUM_UNDER_REPLICATED_LEDGERS", BOOKIE): turns(0, 3)},
        69,
        70,
        CLUSTER,
    ),
    Case(
        "MagnetarBookieLost",
        {name("magnetar_autorecovery_lost_bookies", BOOKIE): turns(0, 1)},
        10,
        11,
        CLUSTER,
    ),
    Case(
        "MagnetarNoAuditor",
        {
            name("magnetar_autorecovery_auditor", of("bookie", "first")): turns(1, 0),
            name("magnetar_autorecovery_auditor", of("bookie", "second")): steady(0),
        },
        19,
        20,
        CLUSTER,
    ),
    one("MagnetarLedgersInDoubt", BOOKIE, "magnetar_autorecovery_ledgers_in_doubt", turns(0, 2), 69),
    one("MagnetarLedgerGaps", BROKER, "magnetar_ensemble_changes_total", rises(1), 39, kind="gap"),
    one(
        "MagnetarLedgerRecoveryStopped",
        BROKER,
        "magnetar_ledger_recoveries_total",
        rises(1),
        14,
        result="stopped",
    ),
    one("MagnetarGarbageCollectionPaused", BOOKIE, "magnetar_log_gc_paused", turns(0, 1), 24),
    Case(
        "MagnetarOrphans",
        {name("magnetar_orphan_bytes", BROKER, where="metadata"): turns(0, 2e9)},
        1449,
        1450,
        CLUSTER,
    ),
    Case(
        "MagnetarCompactionOverdue",
        {name("magnetar_compaction_due_seconds", BROKER): turns(0, 90_000)},
        14,
        15,
        CLUSTER,
    ),
)

CAPACITY: Final = (
    one("MagnetarBookieDiskFilling", BOOKIE, "magnetar_bookie_disk_used_ratio", turns(0.7, 0.9), 19),
    one("MagnetarBookieDiskFullTomorrow", BOOKIE, "magnetar_bookie_disk_used_ratio", "0.51+0.0005x600", 60),
    slow("MagnetarSyncSlow", BOOKIE, "magnetar_log_sync_seconds", 0.25, BOOKIE),
    Case(
        "MagnetarPublishSlow",
        {
            name("magnetar_publish_latency_seconds_bucket", BROKER, le="0.2"): f"0+60x{LONG}",
            name("magnetar_publish_latency_seconds_count", BROKER): f"0+60x9 660+120x{LONG}",
        },
        19,
        20,
        CLUSTER,
    ),
    slow("MagnetarEventLoopLagging", BROKER, "magnetar_event_loop_lag_seconds", 0.5, BROKER),
    Case(
        "MagnetarFileDescriptorsExhausting",
        {name("process_open_fds", BROKER): turns(10, 90), name("process_max_fds", BROKER): steady(100)},
        14,
        15,
        BROKER,
    ),
    one("MagnetarConnectionsRefused", BROKER, "magnetar_refused_connections_total", rises(60), 14),
    one("MagnetarBundleMovesFailing", BROKER, "magnetar_load_moves_failed_total", turns(0, 5), 9),
)

TRAFFIC: Final = (
    Case(
        "MagnetarSubscriptionStuck",
        {
            name("pulsar_subscription_back_log_no_delayed", {**BROKER, **SUBSCRIPTION}): steady(5),
            name("pulsar_subscription_consumers_count", {**BROKER, **SUBSCRIPTION}): steady(1),
            name("pulsar_subscription_msg_rate_out", {**BROKER, **SUBSCRIPTION}): turns(5, 0),
            name("pulsar_subscription_msg_ack_rate", {**BROKER, **SUBSCRIPTION}): steady(0),
        },
        24,
        25,
        {**CLUSTER, **SUBSCRIPTION},
    ),
    one(
        "MagnetarSubscriptionBlocked",
        {**BROKER, **SUBSCRIPTION},
        "pulsar_subscription_blocked_on_unacked_messages",
        turns(0, 1),
        19,
    ),
    Case(
        "MagnetarBacklogGrowing",
        {name("pulsar_msg_backlog", {**BROKER, **TOPIC}): "1000+1000x200"},
        89,
        90,
        {**CLUSTER, **TOPIC},
    ),
    one(
        "MagnetarBacklogEvicted",
        BROKER,
        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
        turns(0, 1),
        9,
        quota_type="size",
    ),
    Case(
        "MagnetarPublishesRefused",
        {name("magnetar_refused_messages_total", BROKER, code="NotAllowedError"): rises(60)},
        14,
        15,
        {**CLUSTER, "instance": "broker-1", "code": "NotAllowedError"},
    ),
    Case(
        "MagnetarLookupsFailing",
        {
            name("pulsar_broker_lookup_answers_total", BROKER): f"0+60x{LONG}",
            name("pulsar_broker_lookup_failures_total", BROKER): rises(60),
        },
        19,
        20,
        CLUSTER,
    ),
    Case(
        "MagnetarTopicsNotLoading",
        {name("topic_load_failed_total", BROKER): rises(60)},
        19,
        20,
        {**CLUSTER, "instance": "broker-1"},
    ),
    one("MagnetarDispatchErrors", BROKER, "magnetar_dispatch_read_errors_total", turns(0, 1), 9),
    Case(
        "MagnetarProtocolErrors",
        {name("magnetar_protocol_errors_total", BROKER, reason="BadFrame"): f"0+120x{LONG}"},
        11,
        14,
        BROKER,
    ),
    Case(
        "MagnetarTransactionOpenTooLong",
        {name("magnetar_txn_oldest_seconds", BROKER, coordinator_id="3"): turns(10, 4_000)},
        14,
        15,
        {**CLUSTER, "coordinator_id": "3"},
    ),
    Case(
        "MagnetarTopicHeldByTransaction",
        {name("magnetar_transaction_blocked_seconds", {**BROKER, **TOPIC}): turns(10, 700)},
        14,
        15,
        {**CLUSTER, **TOPIC},
    ),
)

OFFLOAD: Final = (
    Case(
        "MagnetarOffloadStalled",
        {
            name("magnetar_offload_ledgers", BROKER, state="waiting"): turns(0, 3),
            name("magnetar_offload_ledgers", BROKER, state="running"): steady(0),
            name("magnetar_offload_completed_total", BROKER): steady(7),
        },
        129,
        130,
        CLUSTER,
    ),
    Case(
        "MagnetarOffloadFailing",
        {name("brk_ledgeroffloader_offload_error_total", BROKER, namespace="public/default"): appears(1)},
        9,
        10,
        {**CLUSTER, "namespace": "public/default"},
    ),
    one(
        "MagnetarOffloadWithoutLocation", BROKER, "magnetar_offload_topics_without_location", turns(0, 1), 39
    ),
    one("MagnetarOffloadSweepHalted", BROKER, "magnetar_offload_sweep_halted", turns(0, 1), 14),
    Case(
        "MagnetarOffloadSweepOverdue",
        {
            name("magnetar_offload_last_sweep_timestamp_seconds", BROKER): steady(60),
            name("magnetar_load_leader", BROKER): steady(1),
        },
        391,
        392,
        BROKER,
    ),
    Case(
        "MagnetarOffloadObjectsLeft",
        {
            name("magnetar_offload_deletions_left", BROKER): turns(0, 2),
            name("magnetar_offload_orphans", BROKER): steady(0),
        },
        1449,
        1450,
        BROKER,
    ),
    one(
        "MagnetarColdDataDamaged",
        BROKER,
        "magnetar_cold_reads_failed_total",
        appears(1),
        9,
        reason="damaged",
    ),
    one(
        "MagnetarColdReadsFailing",
        BROKER,
        "magnetar_cold_reads_failed_total",
        rises(60),
        14,
        reason="unavailable",
    ),
)

CASES: Final = (*AVAILABILITY, *METADATA, *DATA, *CAPACITY, *TRAFFIC, *OFFLOAD)
