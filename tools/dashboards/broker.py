"""Brokers: their clients and topics, what they refuse, their ledgers, and how they share the load."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row
from tools.dashboards.shared import (
    CLUSTER,
    OF_CLUSTER,
    instances,
    message_latencies,
    of_processes,
    processes,
    quantile,
    summed_rate,
)

_BROKERS: Final = instances("broker")
_LEGEND: Final = "{{instance}}"


def _each(metric: str) -> tuple[Query, ...]:
    return (Query(f"sum by (instance) ({metric}{{{_BROKERS}}})", _LEGEND),)


def _rate(metric: str, by: str = "instance") -> tuple[Query, ...]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return (Query(summed_rate(metric, _BROKERS, by), legend),)


_CLIENTS: Final = Row(
    "Clients and topics",
    (
        Panel(
            title="Messages in",
            help="Messages a second from producers, over the last minute.",
            unit="mps",
            queries=_each("pulsar_broker_rate_in"),
        ),
        Panel(
            title="Messages out",
            help="Messages a second to consumers, over the last minute.",
            unit="mps",
            queries=_each("pulsar_broker_rate_out"),
        ),
        Panel(
            title="Bytes",
            help="Bytes a second in from producers and out to consumers, of all chosen brokers.",
            unit="binBps",
            queries=(
                Query(f"sum(pulsar_broker_throughput_in{{{_BROKERS}}})", "in"),
                Query(f"sum(pulsar_broker_throughput_out{{{_BROKERS}}})", "out"),
            ),
        ),
        message_latencies(_BROKERS),
        Panel(
            title="Acknowledgements at risk",
            help="Entries that are acknowledged and would come again if the broker ended now; they are "
            "written within a second.",
            unit="short",
            queries=_each("magnetar_acks_at_risk"),
        ),
        Panel(
            title="Connections",
            help="Client connections that are open now, those that discoveries carry included.",
            unit="short",
            queries=_each("pulsar_active_connections"),
        ),
        Panel(
            title="Connections made",
            help="Client connections a second that were opened; many mean that clients come and go.",
            unit="cps",
            queries=_rate("pulsar_connection_created_total_count"),
        ),
        Panel(
            title="Topics and bundles",
            help="Topics that each broker has loaded, and bundles that it owns.",
            unit="short",
            queries=(
                Query(f"sum by (instance) (pulsar_broker_topics_count{{{_BROKERS}}})", "topics {{instance}}"),
                Query(f"sum by (instance) (magnetar_bundles_owned{{{_BROKERS}}})", "bundles {{instance}}"),
            ),
        ),
        Panel(
            title="Lookups",
            help="Lookups a second that were answered with a topic's broker, and that failed.",
            unit="reqps",
            queries=(
                Query(summed_rate("pulsar_broker_lookup_answers_total", _BROKERS), "answered"),
                Query(summed_rate("pulsar_broker_lookup_failures_total", _BROKERS), "failed"),
            ),
        ),
        Panel(
            title="Time of lookups and loads, 99th percentile",
            help="Time until a lookup was answered, and until a topic that was asked for was served.",
            unit="ms",
            queries=(
                Query(
                    f'max by (instance) (pulsar_broker_lookup{{{_BROKERS}, quantile="0.99"}})',
                    "lookup {{instance}}",
                ),
                Query(
                    f'max by (instance) (pulsar_topic_load_times{{{_BROKERS}, quantile="0.99"}})',
                    "load {{instance}}",
                ),
            ),
            log=True,
        ),
        Panel(
            title="Topic loads",
            help="Topics that are being loaded, and loads a second that failed; without those of no topic.",
            unit="short",
            queries=(
                Query(f"sum(pulsar_broker_topic_load_pending_requests{{{_BROKERS}}})", "being loaded"),
                Query(summed_rate("topic_load_failed_total", _BROKERS), "failed a second"),
            ),
        ),
        Panel(
            title="Asked for topics of others",
            help="Times a second that a broker was asked for a topic of others; clients look it up again.",
            unit="cps",
            queries=_rate("magnetar_topics_not_served_total"),
        ),
        Panel(
            title="HTTP sent on",
            help="Calls over HTTP a second that went on to the broker that serves their topic or bundle.",
            unit="reqps",
            queries=_rate("magnetar_http_redirects_total"),
        ),
    ),
)

_MEMORY: Final = Row(
    "Message bytes in memory",
    (
        Panel(
            title="Held, by what holds it",
            help="Message bytes of all chosen brokers; all but the cache wait when magnetarMemoryBudgetMB is "
            "reached.",
            unit="bytes",
            queries=(Query(f"sum by (holder) (magnetar_memory_budget_bytes{{{_BROKERS}}})", "{{holder}}"),),
            stacked=True,
        ),
        Panel(
            title="Held, by broker",
            help="Message bytes that each broker holds, but for its cache, which gives way.",
            unit="bytes",
            queries=(
                Query(
                    f'sum by (instance) (magnetar_memory_budget_bytes{{{_BROKERS}, holder!="cache"}})',
                    _LEGEND,
                ),
            ),
        ),
        Panel(
            title="Tail cache",
            help="Entries a second that were found in the tail cache, and those that were read from storage.",
            unit="rps",
            queries=(
                Query(f"sum(pulsar_ml_cache_hits_rate{{{_BROKERS}}})", "in memory"),
                Query(f"sum(pulsar_ml_cache_misses_rate{{{_BROKERS}}})", "from storage"),
            ),
        ),
    ),
)

_REFUSED: Final = Row(
    "Refused and ignored (empty where there was nothing)",
    (
        Panel(
            title="Commands",
            help="Commands a second that were answered with an error, by command and code.",
            unit="reqps",
            queries=_rate("magnetar_refused_commands_total", "command, code"),
        ),
        Panel(
            title="Messages",
            help="Messages a second that may not be taken, by code.",
            unit="mps",
            queries=_rate("magnetar_refused_messages_total", "code"),
        ),
        Panel(
            title="Connections that broke the protocol",
            help="Connections a second that were closed because of what the client sent, by reason.",
            unit="cps",
            queries=_rate("magnetar_protocol_errors_total", "reason"),
        ),
        Panel(
            title="Connections over the limit",
            help="Connections a second over brokerMaxConnections.",
            unit="cps",
            queries=_rate("magnetar_refused_connections_total"),
        ),
        Panel(
            title="Acknowledgements ignored",
            help="Acknowledgements a second without effect, by reason: most often of messages acknowledged "
            "before.",
            unit="mps",
            queries=_rate("magnetar_ignored_acks_total", "reason"),
        ),
        Panel(
            title="HTTP",
            help="HTTP requests a second that were answered with an error, by status.",
            unit="reqps",
            queries=_rate("magnetar_http_requests_failed_total", "status"),
        ),
        Panel(
            title="Messages dropped or not stored twice",
            help="Messages a second of non-persistent topics without permits, and of producers that "
            "sent them again.",
            unit="mps",
            queries=(
                *_rate("magnetar_dropped_messages_total", "where"),
                Query(summed_rate("magnetar_duplicate_messages_total", _BROKERS), "stored before"),
            ),
        ),
        Panel(
            title="Backlog quotas",
            help="Times a second that a quota made subscriptions skip ahead, and disconnected producers.",
            unit="cps",
            queries=(
                Query(
                    summed_rate(
                        "pulsar_broker_storage_backlog_quota_exceeded_evictions_total", _BROKERS, "quota_type"
                    ),
                    "skipped ahead, {{quota_type}}",
                ),
                Query(
                    summed_rate(
                        "magnetar_backlog_quota_disconnected_producers_total", _BROKERS, "quota_type"
                    ),
                    "disconnected, {{quota_type}}",
                ),
            ),
        ),
        Panel(
            title="Errors of dispatch",
            help="Reads a second that met an error which no read should raise; they are tried again.",
            unit="cps",
            queries=_rate("magnetar_dispatch_read_errors_total"),
        ),
    ),
)

_LEDGERS: Final = Row(
    "Ledgers",
    (
        Panel(
            title="Ensemble changes",
            help="Changes a second of open ledgers' bookies: replaced, gap (no replacement available) or "
            "returned.",
            unit="cps",
            queries=_rate("magnetar_ensemble_changes_total", "kind"),
        ),
        Panel(
            title="Recoveries",
            help="Ledgers a second that were recovered for a new owner; stopped means too few bookies "
            "answered.",
            unit="cps",
            queries=_rate("magnetar_ledger_recoveries_total", "result"),
        ),
        Panel(
            title="Append streams lost",
            help="Append streams a second to bookies that broke, their appends unanswered, by bookie.",
            unit="cps",
            queries=_rate("magnetar_bookie_client_streams_lost_total", "bookie"),
        ),
        Panel(
            title="Reads that asked another replica",
            help="Reads of a bookie a second that gave nothing, by reason.",
            unit="rps",
            queries=_rate("magnetar_quorum_reads_failed_total", "reason"),
        ),
        Panel(
            title="Placed otherwise than wanted",
            help="Ensembles a second in fewer racks than wanted, or with a quarantined bookie.",
            unit="cps",
            queries=_rate("magnetar_placement_fallbacks_total", "kind"),
        ),
        Panel(
            title="Orphans",
            help="Bytes of ledgers that metadata has and no topic names; they go by themselves in time.",
            unit="bytes",
            queries=(Query(f'max(magnetar_orphan_bytes{{{_BROKERS}, where="metadata"}})', "of no topic"),),
        ),
    ),
)

_LOAD: Final = Row(
    "Ownership and load",
    (
        Panel(
            title="Registered",
            help="1 while the broker has its session in metadata and serves its bundles.",
            unit="none",
            queries=_each("magnetar_broker_registered"),
            width=6,
        ),
        Panel(
            title="Leader",
            help="The broker that assigns bundles and evens out the load: 1 on exactly one.",
            unit="none",
            queries=_each("magnetar_load_leader"),
            width=6,
        ),
        Panel(
            title="CPU as the leader sees it",
            help="Percent of one processor that each broker reported when it last looked at its load.",
            unit="percent",
            queries=_each("pulsar_lb_cpu_usage"),
            limits=(Limit(85, "red"),),
            width=6,
        ),
        Panel(
            title="Bundles given away",
            help="Bundles a second that brokers were to give to others, by what became of it.",
            unit="cps",
            queries=_rate("magnetar_bundles_given_total", "outcome"),
            width=6,
        ),
        Panel(
            title="Time to give a bundle",
            help="From the moment its first client was cut off until all were told where its topics are.",
            unit="s",
            queries=(
                Query(quantile(0.5, "magnetar_bundle_giving_seconds", _BROKERS), "median"),
                Query(quantile(0.99, "magnetar_bundle_giving_seconds", _BROKERS), "99 %"),
            ),
            width=6,
        ),
        Panel(
            title="Moved and split for load",
            help="Bundles a second that the leader had moved, that it failed to move, and that were split.",
            unit="cps",
            queries=(
                Query(summed_rate("pulsar_lb_unload_bundle_total", _BROKERS), "moved"),
                Query(summed_rate("magnetar_load_moves_failed_total", _BROKERS), "not moved"),
                Query(summed_rate("pulsar_lb_bundles_split_total", _BROKERS), "split"),
            ),
            width=6,
        ),
        Panel(
            title="Calls between brokers that failed",
            help="Calls of the control plane a second that failed, by method and error.",
            unit="reqps",
            queries=_rate("magnetar_control_failed_calls_total", "method, error"),
            width=6,
        ),
        Panel(
            title="Metadata read anew",
            help="Times a second that a part of metadata could not be followed and was read anew.",
            unit="cps",
            queries=(
                Query(
                    summed_rate("magnetar_watch_failures_total", CLUSTER, "job, watch"), "{{job}} {{watch}}"
                ),
            ),
            width=6,
        ),
    ),
)

_COORDINATOR_LEGEND: Final = "coordinator {{coordinator_id}}"


def _by_coordinator(metric: str) -> tuple[Query, ...]:
    return (Query(f"max by (coordinator_id) ({metric}{{{_BROKERS}}})", _COORDINATOR_LEGEND),)


_TRANSACTIONS: Final = Row(
    "Transactions (empty without coordinators)",
    (
        Panel(
            title="Open transactions",
            help="Transactions of each coordinator that have not ended.",
            unit="short",
            queries=_by_coordinator("pulsar_txn_active_count"),
            width=6,
        ),
        Panel(
            title="Transactions",
            help="Transactions a second that began, and that ended, by outcome; a timeout is an abort, too.",
            unit="cps",
            queries=tuple(
                Query(summed_rate(f"pulsar_txn_{name}_total", _BROKERS), text)
                for name, text in (
                    ("created", "begun"),
                    ("committed", "committed"),
                    ("aborted", "aborted"),
                    ("timeout", "timed out"),
                )
            ),
            width=6,
        ),
        Panel(
            title="Oldest open transaction",
            help="Age of the oldest transaction of each coordinator that has not ended.",
            unit="s",
            queries=_by_coordinator("magnetar_txn_oldest_seconds"),
            limits=(Limit(3600, "red"),),
            width=6,
        ),
        Panel(
            title="Unconfirmed ends",
            help="Topics that have not confirmed the end of a transaction of each coordinator yet.",
            unit="short",
            queries=_by_coordinator("magnetar_txn_unconfirmed_ends"),
            width=6,
        ),
    ),
)

BROKER: Final = Dashboard(
    name="broker",
    title="Brokers",
    about="Brokers' clients and topics, what they hold and refuse, their ledgers, and how they share load.",
    variables=(OF_CLUSTER, of_processes("broker", "Broker")),
    rows=(
        _CLIENTS,
        _MEMORY,
        _REFUSED,
        _LEDGERS,
        _LOAD,
        _TRANSACTIONS,
        processes(_BROKERS),
    ),
)
