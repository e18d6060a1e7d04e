"""Metrics of managed ledgers, summed over each namespace.

As in Pulsar, they repeat topic metrics under other names; dashboards use both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.broker.metrics.topic_metrics import Metric, Number
from magnetar.broker.metrics.views import TopicView
from magnetar.broker.stats import ENTRY_SIZE_BOUNDS_BYTES, WRITE_LATENCY_BOUNDS_MS, Histogram


def _buckets(
    name: str, help_text: str, bounds: Sequence[float], histogram: Callable[[TopicView], Histogram]
) -> list[Metric[TopicView]]:
    """Returns one metric with a label for each range, and another for values above all ranges."""

    def count_of(index: int) -> Callable[[TopicView], Number]:
        return lambda topic: histogram(topic).period_counts[index] / topic.stats.period_s

    lows = (0.0, *map(float, bounds))
    metrics = [
        Metric(
            name,
            "gauge",
            help_text,
            count_of(index),
            label=f'quantile="{lows[index]}_{float(bound)}"',
            follows=index > 0,
        )
        for index, bound in enumerate(bounds)
    ]
    above = f"{help_text} Those above all ranges."
    return [*metrics, Metric(f"{name}_OVERFLOW", "gauge", above, count_of(len(bounds)))]


MANAGED_LEDGER_METRICS: Final[list[Metric[TopicView]]] = [
    Metric(
        "pulsar_ml_AddEntryMessagesRate",
        "gauge",
        "Entries stored, per second.",
        lambda t: t.stats.entry_rate_in,
    ),
    Metric(
        "pulsar_ml_AddEntryBytesRate",
        "gauge",
        "Bytes of entries stored, per second, one copy.",
        lambda t: t.stats.byte_rate_in,
    ),
    Metric(
        "pulsar_ml_AddEntrySucceed",
        "gauge",
        "Entries stored in the last period.",
        lambda t: sum(t.stats.write_latency.period_counts),
    ),
    *_buckets(
        "pulsar_ml_AddEntryLatencyBuckets",
        "Entries per second by milliseconds from receiving them to storing them durably.",
        WRITE_LATENCY_BOUNDS_MS,
        lambda t: t.stats.write_latency,
    ),
    *_buckets(
        "pulsar_ml_EntrySizeBuckets",
        "Entries by bytes, per second.",
        ENTRY_SIZE_BOUNDS_BYTES,
        lambda t: t.stats.entry_sizes,
    ),
    Metric(
        "pulsar_ml_ReadEntriesRate",
        "gauge",
        "Entries read, per second, from memory or from storage.",
        lambda t: t.stats.read_entry_rate,
    ),
    Metric(
        "pulsar_ml_ReadEntriesBytesRate",
        "gauge",
        "Bytes of entries read, per second, from memory or from storage.",
        lambda t: t.stats.read_byte_rate,
    ),
    Metric(
        "pulsar_ml_ReadEntriesOpsCacheMissesRate",
        "gauge",
        "Entries read from storage, per second.",
        lambda t: t.stats.read_miss_rate,
    ),
    Metric(
        "pulsar_ml_NumberOfMessagesInBacklog",
        "gauge",
        "Unacknowledged entries, over all subscriptions.",
        lambda t: sum(each.backlog() for each in t.subscriptions.values()),
    ),
    Metric(
        "pulsar_ml_StoredMessagesSize",
        "gauge",
        "Stored bytes, all copies.",
        lambda t: t.storage_bytes * t.copies,
    ),
]
