"""When each alert fires: series made up for it, the last minute at which it is quiet, and the first it fires.

Series are in promtool's notation, a sample a minute. What goes wrong does so at minute 10, where nothing else
is said: an alert that waits 2 minutes is quiet at 11 and fires at 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

CLUSTER: Final = {"cluster": "one"}
LONG: Final = 2_000
"""Minutes for which a series stays as it is: longer than any alert waits."""


@dataclass(frozen=True, slots=True)
class Case:
    """One alert, what it is about, and when it has to fire."""

    alert: str
    series: Mapping[str, str]
    quiet_min: int
    fires_min: int
    labels: Mapping[str, str]
    """Those of the alert, but for its name and severity."""


def steady(value: float) -> str:
    """Always this."""
    return f"{value:g}+0x{LONG}"


def turns(before: float, after: float, at_min: int = 10) -> str:
    """One value, and from that minute on another one."""
    return f"{before:g}+0x{at_min - 1} {after:g}+0x{LONG}"


def rises(by: float, from_min: int = 10) -> str:
    """A counter at 0 that begins to rise by so much a minute."""
    return f"0+0x{from_min - 1} {by:g}+{by:g}x{LONG}"


def appears(value: float, at_min: int = 10) -> str:
    """A series that is not there before."""
    return f"_x{at_min} {value:g}+0x{LONG}"


def ends(value: float, at_min: int = 10) -> str:
    """A series whose target is not scraped any more, which Prometheus marks at once."""
    return f"{value:g}+0x{at_min - 1} stale"


def of(job: str, instance: str = "") -> dict[str, str]:
    """The labels of a process's series."""
    return {**CLUSTER, "instance": instance or f"{job}-1", "job": job}


def name(metric: str, labels: Mapping[str, str], **more: str) -> str:
    """A series as PromQL writes it."""
    inside = ",".join(f'{key}="{value}"' for key, value in {**labels, **more}.items())
    return f"{metric}{{{inside}}}"


BROKER: Final = of("broker")
BOOKIE: Final = of("bookie")
DISCOVERY: Final = of("discovery")
ETCD: Final = of("etcd")
TOPIC: Final = {"namespace": "public/default", "topic": "persistent://public/default/t"}
SUBSCRIPTION: Final = {**TOPIC, "subscription": "s"}


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


def restarted(at_min: int, lasts_min: int, before: float = 1, after: float = 1) -> str:
    """A series of a process that is away from that minute on for so many."""
    missing = f" _x{lasts_min - 1}" if lasts_min > 1 else ""
    return f"{ends(before, at_min)}{missing} {after:g}+0x{LONG}"


def away(at_min: int, lasts_min: int) -> str:
    """The same as `up` shows it."""
    return f"1+0x{at_min - 1} 0+0x{lasts_min - 1} 1+0x{LONG}"


BOOKIE_RESTARTS: Final = {"3": 10, "2": 13, "1": 16}
"""Minute of each: two minutes away, one back, then the next."""
BROKER_RESTARTS: Final = {"2": 19, "1": 21}

UPGRADE: Final = {
    name("up", DISCOVERY): away(23, 1),
    **{name("up", of("etcd", f"etcd-{n}")): steady(1) for n in "123"},
    **{name("up", of("bookie", f"bookie-{n}")): away(at, 2) for n, at in BOOKIE_RESTARTS.items()},
    **{name("up", of("broker", f"broker-{n}")): away(at, 1) for n, at in BROKER_RESTARTS.items()},
    **{
        name(metric, of("bookie", f"bookie-{n}")): restarted(at, 2)
        for n, at in BOOKIE_RESTARTS.items()
        for metric in ("magnetar_bookie_registered", "bookie_SERVER_STATUS")
    },
    **{
        name("process_start_time_seconds", of("bookie", f"bookie-{n}")): restarted(at, 2, -9_000, at * 60)
        for n, at in BOOKIE_RESTARTS.items()
    },
    **{
        name("process_start_time_seconds", of("broker", f"broker-{n}")): restarted(at, 1, -9_000, at * 60)
        for n, at in BROKER_RESTARTS.items()
    },
    name("magnetar_broker_registered", of("broker", "broker-1")): restarted(21, 1),
    name("magnetar_broker_registered", of("broker", "broker-2")): restarted(19, 1),
    name("magnetar_load_leader", of("broker", "broker-1")): restarted(21, 1, 1, 0),
    name("magnetar_load_leader", of("broker", "broker-2")): f"0+0x20 0 1+0x{LONG}",
    name("magnetar_autorecovery_auditor", of("bookie", "bookie-1")): restarted(16, 2, 1, 0),
    name("magnetar_autorecovery_auditor", of("bookie", "bookie-2")): f"0+0x16 1+0x{LONG}",
    name("auditor_NUM_UNDER_REPLICATED_LEDGERS", of("bookie", "bookie-2")): f"0+0x10 40+0x19 0+0x{LONG}",
    # Nobody can take the place of a bookie that is away when there are three.
    name("magnetar_ensemble_changes_total", of("broker", "broker-1"), kind="gap"): (
        f"0+0x9 20+0x2 40+0x2 60+0x4 _ 0+0x{LONG}"
    ),
    # A broker that takes topics over meets a bookie that has just come back, once.
    name("magnetar_ledger_recoveries_total", of("broker", "broker-2"), result="stopped"): (
        f"0+0x18 _ 0+0x1 3+0x{LONG}"
    ),
    name("topic_load_failed_total", of("broker", "broker-2")): f"0+0x18 _ 0+0x1 3+1x2 5+0x{LONG}",
    name("pulsar_broker_lookup_failures_total", BROKER): f"0+0x18 30+30x4 150+0x{LONG}",
    name("pulsar_broker_lookup_answers_total", BROKER): f"0+600x{LONG}",
    name("magnetar_publish_latency_seconds_bucket", BROKER, le="0.2"): f"0+600x9 5700+300x3 7200+600x{LONG}",
    name("magnetar_publish_latency_seconds_count", BROKER): f"0+600x{LONG}",
    name("pulsar_version_info", of("broker", "broker-1"), version="1.0"): f"1+0x20 _x{LONG}",
    name("pulsar_version_info", of("broker", "broker-1"), version="1.1"): appears(1, 22),
    name("pulsar_version_info", of("broker", "broker-2"), version="1.0"): f"1+0x18 _x{LONG}",
    name("pulsar_version_info", of("broker", "broker-2"), version="1.1"): appears(1, 20),
}
"""A rolling upgrade of three bookies, two brokers and a discovery, a quarter of an hour of it."""

SLOW_RESTARTS: Final = {"3": 10, "2": 14, "1": 18}
SLOW_UPGRADE: Final = {
    name("up", BROKER): steady(1),
    **{name("up", of("bookie", f"bookie-{n}")): away(at, 4) for n, at in SLOW_RESTARTS.items()},
    **{
        name(metric, of("bookie", f"bookie-{n}")): restarted(at, 4)
        for n, at in SLOW_RESTARTS.items()
        for metric in ("magnetar_bookie_registered", "bookie_SERVER_STATUS")
    },
}
"""Each bookie takes four minutes to come back, and the next one goes before anybody has looked."""

WELL: Final = {
    **{name("up", of(job, f"{job}-{n}")): steady(1) for job in ("broker", "bookie", "etcd") for n in "123"},
    name("up", DISCOVERY): steady(1),
    **{name("magnetar_broker_registered", of("broker", f"broker-{n}")): steady(1) for n in "123"},
    **{name("magnetar_bookie_registered", of("bookie", f"bookie-{n}")): steady(1) for n in "123"},
    **{name("bookie_SERVER_STATUS", of("bookie", f"bookie-{n}")): steady(1) for n in "123"},
    name("magnetar_load_leader", BROKER): steady(1),
    name("magnetar_autorecovery_auditor", BOOKIE): steady(1),
    name("magnetar_autorecovery_lost_bookies", BOOKIE): steady(0),
    name("auditor_NUM_UNDER_REPLICATED_LEDGERS", BOOKIE): steady(0),
    name("etcd_server_has_leader", ETCD): steady(1),
    name("magnetar_discovery_metadata_answers", DISCOVERY): steady(1),
    name("magnetar_bookie_disk_used_ratio", BOOKIE): steady(0.6),
    name("pulsar_msg_backlog", {**BROKER, **TOPIC}): steady(50_000),
    name("pulsar_subscription_back_log_no_delayed", {**BROKER, **SUBSCRIPTION}): steady(50_000),
    name("pulsar_subscription_consumers_count", {**BROKER, **SUBSCRIPTION}): steady(0),
    name("pulsar_subscription_msg_rate_out", {**BROKER, **SUBSCRIPTION}): steady(0),
    name("pulsar_subscription_msg_ack_rate", {**BROKER, **SUBSCRIPTION}): steady(0),
    name("magnetar_publish_latency_seconds_bucket", BROKER, le="0.2"): f"0+598x{LONG}",
    name("magnetar_publish_latency_seconds_count", BROKER): f"0+600x{LONG}",
    name("pulsar_broker_lookup_answers_total", BROKER): f"0+600x{LONG}",
    name("pulsar_broker_lookup_failures_total", BROKER): f"0+6x{LONG}",
    # Three bookies were restarted, one after the other, a minute before the middle of the test.
    name("magnetar_ensemble_changes_total", BROKER, kind="gap"): f"3+0x734 4+0x4 5+0x4 6+0x{LONG}",
    name("magnetar_log_damaged_records_total", BOOKIE): steady(2),
    name("process_start_time_seconds", BOOKIE): steady(-86_400),
    name("magnetar_ledger_recoveries_total", BROKER, result="closed"): f"0+1x{LONG}",
    name("magnetar_scrub_findings_total", BOOKIE, finding="damaged"): steady(2),
    name("magnetar_offload_ledgers", BROKER, state="waiting"): steady(9),
    name("magnetar_offload_ledgers", BROKER, state="running"): steady(1),
    name("magnetar_offload_completed_total", BROKER): f"0+1x{LONG}",
    name("magnetar_offload_last_sweep_timestamp_seconds", BROKER): f"0+60x{LONG}",
}
"""A cluster with nothing to tell: all up, some backlog without consumers, some trouble in the past."""
