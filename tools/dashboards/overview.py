"""Is the cluster well, what goes through it, and where to look next."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row
from tools.dashboards.shared import CLUSTER, OF_CLUSTER, RATE, message_latencies, quantile, summed_rate


def _up(title: str, job: str, enough: int, help_text: str) -> Panel:
    return Panel(
        title=title,
        help=help_text,
        unit="none",
        kind="stat",
        queries=(
            Query(f'sum(up{{job="{job}", {CLUSTER}}})', "up"),
            Query(f'count(up{{job="{job}", {CLUSTER}}})', "known"),
        ),
        limits=(Limit(enough, "green"),),
        low_is_bad=True,
        width=4,
        height=4,
    )


_HEALTH: Final = Row(
    "Health",
    (
        _up("Brokers", "broker", 1, "Brokers that Prometheus reaches, of those that it knows."),
        _up("Bookies", "bookie", 3, "Bookies that Prometheus reaches, of those that it knows."),
        _up("Discoveries", "discovery", 1, "Discoveries that Prometheus reaches, of those that it knows."),
        _up("etcd", "etcd", 1, "Members of etcd that Prometheus reaches, of those that it knows."),
        Panel(
            title="Ledgers short of copies",
            help="Ledgers marked as under-replicated now; auto-recovery should bring this back to 0.",
            unit="none",
            kind="stat",
            queries=(Query(f"max(auditor_NUM_UNDER_REPLICATED_LEDGERS{{{CLUSTER}}})", "ledgers"),),
            limits=(Limit(1, "orange"),),
            width=4,
            height=4,
        ),
        Panel(
            title="Alerts",
            help="Alerts of this cluster that fire now; docs/operations.md says what each means.",
            unit="none",
            kind="stat",
            queries=(
                Query(
                    f'count(ALERTS{{alertstate="firing", alertname=~"Magnetar.*", {CLUSTER}}}) or vector(0)',
                    "firing",
                ),
            ),
            limits=(Limit(1, "red"),),
            width=4,
            height=4,
        ),
    ),
)

_TRAFFIC: Final = Row(
    "Traffic",
    (
        Panel(
            title="Messages",
            help="Messages a second that producers sent and consumers got, over the last minute.",
            unit="mps",
            queries=(
                Query(f"sum(pulsar_broker_rate_in{{{CLUSTER}}})", "in"),
                Query(f"sum(pulsar_broker_rate_out{{{CLUSTER}}})", "out"),
            ),
        ),
        Panel(
            title="Bytes",
            help="Bytes a second in from producers and out to consumers, over the last minute.",
            unit="binBps",
            queries=(
                Query(f"sum(pulsar_broker_throughput_in{{{CLUSTER}}})", "in"),
                Query(f"sum(pulsar_broker_throughput_out{{{CLUSTER}}})", "out"),
            ),
        ),
        Panel(
            title="Backlog",
            help="Entries (a batch is one) that subscriptions have not acknowledged, over all topics.",
            unit="short",
            queries=(Query(f"sum(pulsar_broker_msg_backlog{{{CLUSTER}}})", "entries"),),
        ),
        message_latencies(CLUSTER),
        Panel(
            title="Clients",
            help="Connected producers and consumers, and their connections to brokers.",
            unit="short",
            queries=(
                Query(f"sum(pulsar_broker_producers_count{{{CLUSTER}}})", "producers"),
                Query(f"sum(pulsar_broker_consumers_count{{{CLUSTER}}})", "consumers"),
                Query(f"sum(pulsar_active_connections{{{CLUSTER}}})", "connections"),
            ),
        ),
        Panel(
            title="Topics",
            help="Loaded topics and their subscriptions.",
            unit="short",
            queries=(
                Query(f"sum(pulsar_broker_topics_count{{{CLUSTER}}})", "topics"),
                Query(f"sum(pulsar_broker_subscriptions_count{{{CLUSTER}}})", "subscriptions"),
            ),
        ),
        Panel(
            title="Busiest topics",
            help="The ten topics with the most messages in, and how many a second.",
            unit="mps",
            kind="table",
            queries=(
                Query(f"topk(10, sum by (namespace, topic) (pulsar_rate_in{{{CLUSTER}}}))", "messages in"),
            ),
            width=12,
        ),
        Panel(
            title="Longest backlogs",
            help="The ten subscriptions with the most entries that they have not acknowledged.",
            unit="short",
            kind="table",
            queries=(
                Query(
                    "topk(10, sum by (namespace, topic, subscription) "
                    f"(pulsar_subscription_back_log{{{CLUSTER}}}))",
                    "entries",
                ),
            ),
            width=12,
        ),
    ),
)

_STORAGE: Final = Row(
    "Storage",
    (
        Panel(
            title="Stored bytes",
            help="Bytes of the messages of loaded topics, one copy, and what bookies' logs hold of them.",
            unit="bytes",
            queries=(
                Query(f"sum(pulsar_broker_storage_logical_size{{{CLUSTER}}})", "messages"),
                Query(f'sum(magnetar_log_live_bytes{{job="bookie", {CLUSTER}}})', "live on bookies"),
                Query(f'sum(magnetar_log_dead_bytes{{job="bookie", {CLUSTER}}})', "to be collected"),
            ),
            width=6,
        ),
        Panel(
            title="Disks of bookies",
            help="Share of each bookie's disk that is used; above diskUsageThreshold it becomes read-only.",
            unit="percentunit",
            queries=(Query(f"magnetar_bookie_disk_used_ratio{{{CLUSTER}}}", "{{instance}}"),),
            limits=(Limit(0.85, "orange"), Limit(0.95, "red")),
            max=1,
            width=6,
        ),
        Panel(
            title="Written to bookies",
            help="Bytes a second of entries that bookies took, all copies.",
            unit="binBps",
            queries=(Query(summed_rate("bookie_WRITE_BYTES", CLUSTER), "written"),),
            width=6,
        ),
        Panel(
            title="Sync, 99th percentile",
            help="Time for a group of a bookie's log to be written and made durable: publishers wait for it.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "magnetar_log_sync_seconds", f'job="bookie", {CLUSTER}', "instance"),
                    "{{instance}}",
                ),
            ),
            limits=(Limit(0.25, "red"),),
            width=6,
        ),
    ),
)

_METADATA: Final = Row(
    "Metadata",
    (
        Panel(
            title="etcd: writes",
            help="Transactions a second that etcd's members agreed on; only metadata goes there, no message.",
            unit="ops",
            queries=(
                Query(
                    f'rate(etcd_server_proposals_committed_total{{job="etcd", {CLUSTER}}}[{RATE}])',
                    "{{instance}}",
                ),
            ),
            width=6,
        ),
        Panel(
            title="etcd: sync, 99th percentile",
            help="Time for etcd to sync its log; sessions run out when this comes near their time.",
            unit="s",
            queries=(
                Query(
                    quantile(
                        0.99,
                        "etcd_disk_wal_fsync_duration_seconds",
                        f'job="etcd", {CLUSTER}',
                        "instance",
                    ),
                    "{{instance}}",
                ),
            ),
            limits=(Limit(0.5, "red"),),
            width=6,
        ),
        Panel(
            title="etcd: database",
            help="Size of etcd's database, and the quota at which it refuses every write.",
            unit="bytes",
            queries=(
                Query(f'etcd_mvcc_db_total_size_in_bytes{{job="etcd", {CLUSTER}}}', "{{instance}}"),
                Query(f'min(etcd_server_quota_backend_bytes{{job="etcd", {CLUSTER}}})', "quota"),
            ),
            log=True,
            width=6,
        ),
        Panel(
            title="etcd: leader",
            help="Members that have a leader, and changes of it in the last hour; without one, no metadata.",
            unit="none",
            queries=(
                Query(f'sum(etcd_server_has_leader{{job="etcd", {CLUSTER}}})', "with a leader"),
                Query(
                    f'max(increase(etcd_server_leader_changes_seen_total{{job="etcd", {CLUSTER}}}[1h]))',
                    "changes",
                ),
            ),
            width=6,
        ),
    ),
)

_PROCESSES: Final = Row(
    "Processes",
    (
        Panel(
            title="Event loop lag, 99th percentile",
            help="How much later than asked timers run: what is late here is late for all clients.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "magnetar_event_loop_lag_seconds", CLUSTER, "job, instance"),
                    "{{job}} {{instance}}",
                ),
            ),
            limits=(Limit(0.5, "red"),),
        ),
        Panel(
            title="CPU",
            help="Share of one processor that each process uses; Magnetar's cannot use more than about one.",
            unit="percentunit",
            queries=(Query(f"rate(process_cpu_seconds_total{{{CLUSTER}}}[{RATE}])", "{{job}} {{instance}}"),),
        ),
        Panel(
            title="Memory",
            help="Resident memory of each process, which the limits of containers count.",
            unit="bytes",
            queries=(Query(f"process_resident_memory_bytes{{{CLUSTER}}}", "{{job}} {{instance}}"),),
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    name="overview",
    title="Overview",
    about="Whether a cluster is well, what goes through it, and which process to look at next.",
    variables=(OF_CLUSTER,),
    rows=(_HEALTH, _TRAFFIC, _STORAGE, _METADATA, _PROCESSES),
)
