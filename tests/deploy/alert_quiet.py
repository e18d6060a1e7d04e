"""Series over which no alert fires: of clusters that are well, and of rolling upgrades."""

from __future__ import annotations

from typing import Final

from tests.deploy.alert_series import (
    BOOKIE,
    BROKER,
    DISCOVERY,
    ETCD,
    LONG,
    SUBSCRIPTION,
    TOPIC,
    appears,
    away,
    name,
    of,
    restarted,
    steady,
)

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
