"""One namespace or topic: its messages, its subscriptions, what is stored of it."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row, Variable
from tools.dashboards.shared import CLUSTER, OF_CLUSTER

_TOPICS: Final = f'{CLUSTER}, namespace=~"$namespace", topic=~"$topic"'
_EACH: Final = "namespace, topic"
_SUBSCRIPTION: Final = "namespace, topic, subscription"
_TOPIC_LEGEND: Final = "{{namespace}} {{topic}}"
_SUBSCRIPTION_LEGEND: Final = "{{topic}} {{subscription}}"

_BUCKETS: Final = (
    ("le_0_5", "0.5 ms"),
    ("le_1", "1 ms"),
    ("le_5", "5 ms"),
    ("le_10", "10 ms"),
    ("le_20", "20 ms"),
    ("le_50", "50 ms"),
    ("le_100", "100 ms"),
    ("le_200", "200 ms"),
    ("le_1000", "1 s"),
)

_SIZES: Final = (
    ("le_128", "128 B"),
    ("le_512", "512 B"),
    ("le_1_kb", "1 KiB"),
    ("le_2_kb", "2 KiB"),
    ("le_4_kb", "4 KiB"),
    ("le_16_kb", "16 KiB"),
    ("le_100_kb", "100 KiB"),
    ("le_1_mb", "1 MiB"),
)


def _write_latency(where: str) -> tuple[Query, ...]:
    """How many entries of the last minute took how long to become durable; Pulsar's buckets do not add up."""
    metric = "pulsar_storage_write_latency"
    up_to = (Query(f"sum({metric}_{suffix}{{{where}}})", f"up to {text}") for suffix, text in _BUCKETS)
    return (*up_to, Query(f"sum({metric}_overflow{{{where}}})", "over 1 s"))


def _by_topic(metric: str) -> tuple[Query, ...]:
    return (Query(f"sum by ({_EACH}) ({metric}{{{_TOPICS}}})", _TOPIC_LEGEND),)


def _by_subscription(metric: str) -> tuple[Query, ...]:
    return (Query(f"sum by ({_SUBSCRIPTION}) ({metric}{{{_TOPICS}}})", _SUBSCRIPTION_LEGEND),)


def _panel(title: str, unit: str, queries: tuple[Query, ...], help_text: str) -> Panel:
    return Panel(title=title, unit=unit, queries=queries, help=help_text)


def _sizes() -> tuple[Query, ...]:
    up_to = (
        Query(f"sum(pulsar_entry_size_{suffix}{{{_TOPICS}}})", f"up to {text}") for suffix, text in _SIZES
    )
    return (*up_to, Query(f"sum(pulsar_entry_size_le_overflow{{{_TOPICS}}})", "over 1 MiB"))


_MESSAGES: Final = Row(
    "Messages",
    (
        _panel(
            "Messages in",
            "mps",
            _by_topic("pulsar_rate_in"),
            "Messages a second from producers, over the last minute.",
        ),
        _panel(
            "Messages out",
            "mps",
            _by_topic("pulsar_rate_out"),
            "Messages a second to consumers of all subscriptions, those sent again included.",
        ),
        _panel(
            "Average message",
            "bytes",
            _by_topic("pulsar_average_msg_size"),
            "Average size of the messages that came in over the last minute, as they were sent.",
        ),
        _panel("Bytes in", "binBps", _by_topic("pulsar_throughput_in"), "Bytes a second from producers."),
        _panel("Bytes out", "binBps", _by_topic("pulsar_throughput_out"), "Bytes a second to consumers."),
        Panel(
            title="Clients",
            help="Connected producers and consumers of the chosen topics, and their subscriptions.",
            unit="short",
            queries=(
                Query(f"sum(pulsar_producers_count{{{_TOPICS}}})", "producers"),
                Query(f"sum(pulsar_consumers_count{{{_TOPICS}}})", "consumers"),
                Query(f"sum(pulsar_subscriptions_count{{{_TOPICS}}})", "subscriptions"),
            ),
        ),
        Panel(
            title="Time to durable",
            help="Entries of the last minute by the time from their arrival at the broker to being durable.",
            unit="short",
            queries=_write_latency(_TOPICS),
            stacked=True,
            width=12,
        ),
        Panel(
            title="Sizes of entries",
            help="Entries of the last minute by their size; a batch is one entry.",
            unit="short",
            queries=_sizes(),
            stacked=True,
            width=12,
        ),
    ),
)

_SUBSCRIPTIONS: Final = Row(
    "Subscriptions",
    (
        _panel(
            "Backlog",
            "short",
            _by_subscription("pulsar_subscription_back_log"),
            "Entries (a batch is one) that the subscription has not acknowledged.",
        ),
        _panel(
            "Messages out",
            "mps",
            _by_subscription("pulsar_subscription_msg_rate_out"),
            "Messages a second to the subscription's consumers.",
        ),
        _panel(
            "Acknowledged",
            "mps",
            _by_subscription("pulsar_subscription_msg_ack_rate"),
            "Messages a second that the subscription's consumers acknowledged.",
        ),
        _panel(
            "Not acknowledged",
            "short",
            _by_subscription("pulsar_subscription_unacked_messages"),
            "Messages that were sent to consumers and are not acknowledged; at a limit nothing more is sent.",
        ),
        _panel(
            "Acknowledgements at risk",
            "short",
            _by_subscription("magnetar_subscription_acks_at_risk"),
            "Entries that are acknowledged and would be delivered again if the broker ended now.",
        ),
        _panel(
            "Sent again",
            "mps",
            _by_subscription("pulsar_subscription_msg_rate_redeliver"),
            "Messages a second that consumers got again: given back, or their consumer left.",
        ),
        _panel(
            "Delayed",
            "short",
            _by_subscription("pulsar_subscription_delayed"),
            "Entries that wait for the time at which they are to be delivered.",
        ),
        _panel(
            "Expired",
            "short",
            _by_subscription("pulsar_subscription_msg_rate_expired"),
            "Entries a second that were not acknowledged within the time to live.",
        ),
        _panel(
            "Consumers",
            "short",
            _by_subscription("pulsar_subscription_consumers_count"),
            "Connected consumers of the subscription.",
        ),
        Panel(
            title="Blocked",
            help="1 while delivery is blocked by too many unacknowledged messages.",
            unit="none",
            queries=_by_subscription("pulsar_subscription_blocked_on_unacked_messages"),
            limits=(Limit(1, "red"),),
        ),
        Panel(
            title="Last acknowledgement",
            help="How long ago a consumer that is connected acknowledged something.",
            unit="s",
            queries=(
                Query(
                    f"time() - max by ({_SUBSCRIPTION}) "
                    f"(pulsar_subscription_last_acked_timestamp{{{_TOPICS}}}) / 1000",
                    _SUBSCRIPTION_LEGEND,
                ),
            ),
        ),
        Panel(
            title="Held back by dispatch rates",
            help="Times a second that a dispatch rate in messages or bytes was used up and consumers waited.",
            unit="cps",
            queries=tuple(
                Query(
                    f"sum by ({_SUBSCRIPTION}) (rate("
                    f"pulsar_subscription_dispatch_throttled_{kind}_events{{{_TOPICS}}}[$__rate_interval]))",
                    f"{_SUBSCRIPTION_LEGEND} {text}",
                )
                for kind, text in (("msg", "messages"), ("bytes", "bytes"))
            ),
        ),
        _panel(
            "Held back by publish rates",
            "short",
            _by_topic("pulsar_publish_rate_limit_times"),
            "Times since the topic was loaded that a publish rate left a producer's connection unread.",
        ),
    ),
)

_STORED: Final = Row(
    "Stored",
    (
        _panel(
            "Stored bytes",
            "bytes",
            _by_topic("pulsar_storage_logical_size"),
            "Bytes of the topic's messages, one copy, as brokers count them.",
        ),
        _panel(
            "Offloaded bytes",
            "bytes",
            _by_topic("pulsar_storage_offloaded_size"),
            "Bytes of ledgers that were offloaded, whether bookies have them still or not.",
        ),
        _panel(
            "Backlog bytes",
            "bytes",
            _by_topic("pulsar_storage_backlog_size"),
            "Estimated backlog in bytes of the slowest durable subscription.",
        ),
        Panel(
            title="Age of the backlog",
            help="Age of the oldest message that a durable subscription has not acknowledged.",
            unit="s",
            queries=(
                Query(
                    f"max by ({_EACH}) (pulsar_storage_backlog_age_seconds{{{_TOPICS}}} >= 0)", _TOPIC_LEGEND
                ),
            ),
        ),
        _panel(
            "Entries stored",
            "wps",
            _by_topic("pulsar_storage_write_rate"),
            "Entries a second that became durable; a batch is one.",
        ),
        Panel(
            title="Entries read",
            help="Entries a second that were read for consumers, and those of them not found in memory.",
            unit="rps",
            queries=(
                Query(f"sum(pulsar_storage_read_rate{{{_TOPICS}}})", "read"),
                Query(f"sum(pulsar_storage_read_cache_misses_rate{{{_TOPICS}}})", "not in memory"),
            ),
        ),
        _panel(
            "Index of delayed messages",
            "bytes",
            _by_topic("pulsar_delayed_message_index_size_bytes"),
            "Memory of the broker for the entries that wait for their time.",
        ),
        _panel(
            "Compacted views",
            "bytes",
            _by_topic("pulsar_compaction_compacted_entries_size"),
            "Estimated bytes of the entries in the compacted views, one copy.",
        ),
        Panel(
            title="Compactions",
            help="Compactions since the topics were loaded, by outcome, and messages that they left out.",
            unit="short",
            queries=(
                Query(f"sum(pulsar_compaction_succeed_count{{{_TOPICS}}})", "succeeded"),
                Query(f"sum(pulsar_compaction_failed_count{{{_TOPICS}}}) or vector(0)", "failed"),
                Query(f"sum(pulsar_compaction_removed_event_count{{{_TOPICS}}})", "messages left out"),
            ),
        ),
    ),
)

_TRANSACTIONS: Final = Row(
    "Transactions (empty where there are none)",
    (
        _panel(
            "Open",
            "short",
            _by_topic("pulsar_txn_tb_active_total"),
            "Transactions with messages or acknowledgements in the topic that have not ended there.",
        ),
        Panel(
            title="Ended",
            help="Transactions a second that ended in the topics, by outcome.",
            unit="cps",
            queries=(
                Query(
                    f"sum(rate(pulsar_txn_tb_committed_total{{{_TOPICS}}}[$__rate_interval]))", "committed"
                ),
                Query(f"sum(rate(pulsar_txn_tb_aborted_total{{{_TOPICS}}}[$__rate_interval]))", "aborted"),
            ),
        ),
        Panel(
            title="Held back for",
            help="Age of the transaction that a topic's consumers wait for.",
            unit="s",
            queries=(
                Query(f"max by ({_EACH}) (magnetar_transaction_blocked_seconds{{{_TOPICS}}})", _TOPIC_LEGEND),
            ),
            limits=(Limit(600, "red"),),
        ),
    ),
)

TOPIC: Final = Dashboard(
    name="topic",
    title="Topics",
    about="Messages, subscriptions and storage of namespaces and topics. Where brokers show no figures of "
    "single topics (exposeTopicLevelMetricsInPrometheus=false), leave the topic at All: series are then of "
    "namespaces.",
    variables=(
        OF_CLUSTER,
        Variable(
            name="namespace",
            title="Namespace",
            query=f"label_values(pulsar_topics_count{{{CLUSTER}}}, namespace)",
            many=True,
        ),
        Variable(
            name="topic",
            title="Topic",
            query=f'label_values(pulsar_rate_in{{{CLUSTER}, namespace=~"$namespace"}}, topic)',
            many=True,
        ),
    ),
    rows=(_MESSAGES, _SUBSCRIPTIONS, _STORED, _TRANSACTIONS),
)
