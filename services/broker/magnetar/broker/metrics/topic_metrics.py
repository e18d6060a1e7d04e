"""Metrics of topics and subscriptions, and their names.

Each metric is a name, a help text and a function of a topic or subscription. Names and units are Pulsar's
where the meaning is the same: rates per second over the last minute, sizes in bytes, latencies in ms,
backlogs in entries. Latency and size buckets are those of the last minute and are not cumulative, as in
Pulsar. Metrics that Pulsar does not have begin with `magnetar_`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from magnetar.broker.message_drops import NonPersistentSubscriptionStats
from magnetar.broker.metrics.views import SubscriptionView, TopicView
from magnetar.broker.stats import Histogram
from magnetar.broker.subscriptions.limits.dispatch_rate import (
    BYTES,
    MESSAGES,
    OF_BROKER,
    OF_SUBSCRIPTION,
    OF_TOPIC,
)
from magnetar.ledger.compacted.figures import WRITE_MS_BOUNDS

Number = int | float
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Metric(Generic[T]):
    """A metric with one line on the page for each `T`; `seldom` metrics have no line where the value is 0."""

    name: str
    kind: str
    help: str
    value: Callable[[T], Number]
    seldom: bool = False
    label: str = ""
    """One additional label, as text; metrics that differ only in it stand together, and only the first has
    comment lines.
    """
    follows: bool = False
    """Whether it follows another metric of the same name."""
    adds_up: bool = True
    """Whether the sum over a namespace is meaningful; it is not for an average or an age."""

    @property
    def head(self) -> str:
        """The comment lines before the samples."""
        if self.follows:
            return ""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


def _buckets(
    name: str, help_text: str, suffixes: Sequence[str], histogram: Callable[[TopicView], Histogram]
) -> list[Metric[TopicView]]:
    def count_of(index: int) -> Callable[[TopicView], Number]:
        return lambda topic: histogram(topic).period_counts[index]

    metrics = [
        Metric(f"{name}_{suffix}", "gauge", help_text, count_of(index))
        for index, suffix in enumerate(suffixes)
    ]
    metrics.append(
        Metric(f"{name}_count", "gauge", help_text, lambda topic: sum(histogram(topic).period_counts))
    )
    metrics.append(Metric(f"{name}_sum", "gauge", help_text, lambda topic: histogram(topic).period_total))
    return metrics


def _compaction_writes() -> list[Metric[TopicView]]:
    name, help_text = (
        "pulsar_compaction_latency",
        "Pages that compactions since the load wrote, by milliseconds until they were durable.",
    )

    def count_of(index: int) -> Callable[[TopicView], Number]:
        return lambda topic: topic.compaction.writes.counts[index]

    values: list[tuple[str, Callable[[TopicView], Number]]] = [
        (f"le_{bound:g}".replace(".", "_"), count_of(index)) for index, bound in enumerate(WRITE_MS_BOUNDS)
    ]
    values += [
        ("overflow", count_of(len(WRITE_MS_BOUNDS))),
        ("count", lambda topic: sum(topic.compaction.writes.counts)),
        ("sum", lambda topic: topic.compaction.writes.total_ms),
    ]
    return [Metric(f"{name}_{suffix}", "gauge", help_text, value, seldom=True) for suffix, value in values]


def _throttled(unit: str, kind: str) -> list[Metric[SubscriptionView]]:
    def times(scope: str) -> Callable[[SubscriptionView], Number]:
        return lambda subscription: subscription.stats.times_throttled(scope, kind)

    return [
        Metric(
            f"pulsar_subscription_dispatch_throttled_{unit}_events",
            "gauge",
            f"Delivery pauses because a dispatch rate in {kind} was exhausted, by level.",
            times(scope),
            seldom=True,
            label=f'reason="{reason}"',
            follows=index > 0,
        )
        for index, (reason, scope) in enumerate(
            (("subscription", OF_SUBSCRIPTION), ("topic", OF_TOPIC), ("broker", OF_BROKER))
        )
    ]


def _moment(name: str, what: str, value: Callable[[SubscriptionView], Number]) -> Metric[SubscriptionView]:
    help_text = f"Last time that {what}, ms since 1970 UTC."
    metric = f"pulsar_subscription_last_{name}_timestamp"
    return Metric(metric, "gauge", help_text, value, seldom=True, adds_up=False)


def _latest(subscription: SubscriptionView, moment: str) -> int:
    return max([getattr(each, moment) for each in subscription.consumers], default=0)


def _average_size(topic: TopicView) -> Number:
    rate = topic.stats.message_rate_in
    return topic.stats.byte_rate_in / rate if rate else 0


TOPIC_METRICS: Final[list[Metric[TopicView]]] = [
    Metric("pulsar_subscriptions_count", "gauge", "Subscriptions.", lambda t: len(t.subscriptions)),
    Metric("pulsar_producers_count", "gauge", "Connected producers.", lambda t: t.producer_count),
    Metric(
        "pulsar_consumers_count",
        "gauge",
        "Connected consumers.",
        lambda t: sum(each.consumer_count for each in t.subscriptions.values()),
    ),
    Metric("pulsar_rate_in", "gauge", "Messages published per second.", lambda t: t.stats.message_rate_in),
    Metric("pulsar_rate_out", "gauge", "Messages delivered per second.", lambda t: t.stats.message_rate_out),
    Metric("pulsar_throughput_in", "gauge", "Bytes published per second.", lambda t: t.stats.byte_rate_in),
    Metric("pulsar_throughput_out", "gauge", "Bytes delivered per second.", lambda t: t.stats.byte_rate_out),
    Metric(
        "pulsar_average_msg_size",
        "gauge",
        "Average bytes of a published message.",
        _average_size,
        adds_up=False,
    ),
    Metric(
        "pulsar_in_messages_total",
        "counter",
        "Messages published since the load.",
        lambda t: t.stats.messages_in,
    ),
    Metric("pulsar_in_bytes_total", "counter", "Bytes published since the load.", lambda t: t.stats.bytes_in),
    Metric("pulsar_storage_size", "gauge", "Stored bytes, all copies.", lambda t: t.storage_bytes * t.copies),
    Metric("pulsar_storage_logical_size", "gauge", "Stored bytes, one copy.", lambda t: t.storage_bytes),
    Metric(
        "pulsar_storage_offloaded_size",
        "gauge",
        "Stored bytes of offloaded ledgers, on bookies or not.",
        lambda t: t.offloaded_bytes,
        seldom=True,
    ),
    Metric(
        "pulsar_storage_backlog_size",
        "gauge",
        "Estimated backlog in bytes of the slowest durable subscription.",
        lambda t: t.backlog_bytes,
    ),
    Metric(
        "pulsar_storage_backlog_age_seconds",
        "gauge",
        "Age in seconds of the oldest unacknowledged message at the last check; -1 without one.",
        lambda t: t.oldest_backlog_age_s,
        adds_up=False,
    ),
    Metric(
        "pulsar_storage_write_rate", "gauge", "Entries stored, per second.", lambda t: t.stats.entry_rate_in
    ),
    Metric(
        "pulsar_storage_read_rate",
        "gauge",
        "Entries read, per second, from memory or from storage.",
        lambda t: t.stats.read_entry_rate,
    ),
    Metric(
        "pulsar_storage_read_cache_misses_rate",
        "gauge",
        "Entries read from storage, per second.",
        lambda t: t.stats.read_miss_rate,
    ),
    Metric(
        "pulsar_msg_backlog",
        "gauge",
        "Unacknowledged entries, over all subscriptions.",
        lambda t: sum(each.backlog() for each in t.subscriptions.values()),
    ),
    Metric(
        "pulsar_delayed_message_index_size_bytes",
        "gauge",
        "Bytes of memory of the index of delayed entries, which all subscriptions share.",
        lambda t: t.delayed_index_bytes,
    ),
    Metric(
        "pulsar_publish_rate_limit_times",
        "gauge",
        "Times that a publish rate paused reading from a producer's connection.",
        lambda t: t.times_rate_limited,
        seldom=True,
    ),
    *_buckets(
        "pulsar_storage_write_latency",
        "Entries of the last minute by milliseconds from receiving them to storing them durably.",
        ("le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000", "overflow"),
        lambda t: t.stats.write_latency,
    ),
    *_buckets(
        "pulsar_entry_size",
        "Entries of the last minute by bytes.",
        (
            "le_128",
            "le_512",
            "le_1_kb",
            "le_2_kb",
            "le_4_kb",
            "le_16_kb",
            "le_100_kb",
            "le_1_mb",
            "le_overflow",
        ),
        lambda t: t.stats.entry_sizes,
    ),
    Metric(
        "pulsar_compaction_removed_event_count",
        "gauge",
        "Messages left out of the compacted view, by the compactions since the load.",
        lambda t: t.compaction.removed_total,
        seldom=True,
    ),
    Metric(
        "pulsar_compaction_succeed_count",
        "gauge",
        "Successful compactions since the load.",
        lambda t: t.compaction.succeeded,
        seldom=True,
    ),
    Metric(
        "pulsar_compaction_failed_count",
        "gauge",
        "Failed compactions since the load.",
        lambda t: t.compaction.failed,
        seldom=True,
    ),
    Metric(
        "pulsar_compaction_duration_time_in_mills",
        "gauge",
        "Milliseconds of the last successful compaction.",
        lambda t: t.compaction.duration_ms,
        seldom=True,
        adds_up=False,
    ),
    Metric(
        "pulsar_compaction_read_throughput",
        "gauge",
        "Bytes per second that the last successful compaction read.",
        lambda t: t.compaction.read_rate,
        seldom=True,
        adds_up=False,
    ),
    Metric(
        "pulsar_compaction_write_throughput",
        "gauge",
        "Bytes per second that the last successful compaction wrote.",
        lambda t: t.compaction.write_rate,
        seldom=True,
        adds_up=False,
    ),
    *_compaction_writes(),
    Metric(
        "pulsar_compaction_compacted_entries_count",
        "gauge",
        "Entries in the compacted view.",
        lambda t: t.compacted_entries,
        seldom=True,
    ),
    Metric(
        "pulsar_compaction_compacted_entries_size",
        "gauge",
        "Estimated bytes of the entries in the compacted view, one copy.",
        lambda t: t.compacted_bytes,
        seldom=True,
    ),
    Metric(
        "pulsar_txn_tb_active_total",
        "gauge",
        "Transactions with messages or acknowledgements here that have not ended here.",
        lambda t: t.transactions.open,
        seldom=True,
    ),
    Metric(
        "pulsar_txn_tb_committed_total",
        "gauge",
        "Transactions that were committed here since the load.",
        lambda t: t.transactions.committed,
        seldom=True,
    ),
    Metric(
        "pulsar_txn_tb_aborted_total",
        "gauge",
        "Transactions that were aborted here since the load.",
        lambda t: t.transactions.aborted,
        seldom=True,
    ),
    Metric(
        "magnetar_transaction_blocked_seconds",
        "gauge",
        "Age in seconds of the open transaction that readers wait for.",
        lambda t: t.blocked_by_transaction_s,
        seldom=True,
        adds_up=False,
    ),
    Metric(
        "magnetar_in_entries_total",
        "counter",
        "Entries published since the load.",
        lambda t: t.stats.entries_in,
    ),
]

SUBSCRIPTION_METRICS: Final[list[Metric[SubscriptionView]]] = [
    Metric("pulsar_subscription_back_log", "gauge", "Unacknowledged entries.", lambda s: s.backlog()),
    Metric(
        "pulsar_subscription_back_log_no_delayed",
        "gauge",
        "Unacknowledged entries that are not delayed.",
        lambda s: max(0, s.backlog() - s.delayed),
    ),
    Metric(
        "pulsar_subscription_in_replay",
        "gauge",
        "Entries that were read and wait for delivery.",
        lambda s: s.in_replay,
    ),
    Metric(
        "magnetar_subscription_acks_at_risk",
        "gauge",
        "Acknowledged entries that would be redelivered if the broker crashed now.",
        lambda s: s.acks_at_risk,
    ),
    *_throttled("msg", MESSAGES),
    *_throttled("bytes", BYTES),
    _moment("consumed", "something was sent to a consumer", lambda s: _latest(s, "sent_at_ms")),
    _moment("consumed_flow", "a consumer gave permits", lambda s: _latest(s, "flow_at_ms")),
    _moment("acked", "a consumer acknowledged something", lambda s: _latest(s, "acked_at_ms")),
    _moment("mark_delete_advanced", "the mark-delete position moved on disk", lambda s: s.mark_deleted_ms),
    _moment("expire", "messages expired", lambda s: s.stats.expired_at_ms),
    Metric(
        "pulsar_subscription_msg_drop_rate",
        "gauge",
        "Messages dropped because no consumer had permits, per second; non-persistent topics only.",
        lambda s: s.stats.drops.rate if isinstance(s.stats, NonPersistentSubscriptionStats) else 0,
        seldom=True,
    ),
    Metric("pulsar_subscription_delayed", "gauge", "Delayed entries that are not due.", lambda s: s.delayed),
    Metric(
        "pulsar_subscription_unacked_messages",
        "gauge",
        "Messages sent to consumers and not acknowledged.",
        lambda s: s.unacked_messages,
    ),
    Metric(
        "pulsar_subscription_blocked_on_unacked_messages",
        "gauge",
        "1 while delivery is blocked by too many unacknowledged messages.",
        lambda s: int(s.blocked_on_unacked),
    ),
    Metric(
        "pulsar_subscription_consumers_count", "gauge", "Connected consumers.", lambda s: s.consumer_count
    ),
    Metric(
        "pulsar_subscription_msg_rate_out",
        "gauge",
        "Messages delivered per second.",
        lambda s: s.stats.message_rate_out,
    ),
    Metric(
        "pulsar_subscription_msg_throughput_out",
        "gauge",
        "Bytes delivered per second.",
        lambda s: s.stats.byte_rate_out,
    ),
    Metric(
        "pulsar_subscription_msg_rate_redeliver",
        "gauge",
        "Redelivered messages per second.",
        lambda s: s.stats.redelivery_rate,
    ),
    Metric(
        "pulsar_subscription_msg_ack_rate",
        "gauge",
        "Messages acknowledged per second.",
        lambda s: s.stats.ack_rate,
    ),
    Metric(
        "pulsar_subscription_msg_rate_expired",
        "gauge",
        "Expired entries per second.",
        lambda s: s.stats.expired_rate,
    ),
    Metric(
        "pulsar_subscription_total_msg_expired",
        "gauge",
        "Expired entries since the load.",
        lambda s: s.stats.messages_expired,
    ),
    Metric(
        "pulsar_out_messages_total",
        "counter",
        "Messages delivered since the load.",
        lambda s: s.stats.messages_out,
    ),
    Metric(
        "pulsar_out_bytes_total", "counter", "Bytes delivered since the load.", lambda s: s.stats.bytes_out
    ),
    Metric(
        "magnetar_subscription_redelivered_messages_total",
        "counter",
        "Redelivered messages since the load.",
        lambda s: s.stats.messages_redelivered,
    ),
    Metric(
        "magnetar_subscription_acked_messages_total",
        "counter",
        "Messages acknowledged since the load.",
        lambda s: s.stats.acks,
    ),
]

BROKER_SUMS: Final = (
    "subscriptions_count",
    "producers_count",
    "consumers_count",
    "rate_in",
    "rate_out",
    "throughput_in",
    "throughput_out",
    "storage_size",
    "storage_logical_size",
    "storage_write_rate",
    "storage_read_rate",
    "storage_read_cache_misses_rate",
    "msg_backlog",
)
"""`pulsar_<name>` summed over the topics is `pulsar_broker_<name>`."""
