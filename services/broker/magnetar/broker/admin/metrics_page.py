"""The Prometheus page of topics and subscriptions, rendered by hand from plain attributes.

A client-library child per topic and metric would cost several times the CPU and memory. Here every metric is
a name, a help text and a function of a topic; label texts are made once per topic and kept; and the page
comes in pieces, each of about a millisecond of work, so that the event loop serves messages in between and
the page is never whole in memory.

Names, labels and units are Pulsar's where the meaning is the same: rates per second over the last minute,
sizes in bytes, latencies in ms, backlogs in entries. Latency and size buckets are those of the last minute
and do not add up (Pulsar's are so). What Pulsar has no name for begins with `magnetar_`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from magnetar.broker.admin.view import BrokerView, SubscriptionView, TopicView
from magnetar.broker.stats import Histogram

SLICE_S: Final = 0.001
"""Work between two turns of the event loop."""

_STEPS_PER_LOOK: Final = 64
_VERSION: Final = "0.1.0"

Number = int | float
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Metric(Generic[T]):
    name: str
    kind: str
    help: str
    value: Callable[[T], Number]

    @property
    def head(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"


@dataclass(slots=True)
class _TopicLabels:
    """Label texts of one topic, made once."""

    namespace: str
    topic: str
    subscriptions: dict[str, str] = field(default_factory=dict)


def _buckets(
    name: str, help_text: str, suffixes: Sequence[str], histogram: Callable[[TopicView], Histogram]
) -> list[_Metric[TopicView]]:
    def count_of(index: int) -> Callable[[TopicView], Number]:
        return lambda topic: histogram(topic).period_counts[index]

    metrics = [
        _Metric(f"{name}_{suffix}", "gauge", help_text, count_of(index))
        for index, suffix in enumerate(suffixes)
    ]
    metrics.append(
        _Metric(f"{name}_count", "gauge", help_text, lambda topic: sum(histogram(topic).period_counts))
    )
    metrics.append(_Metric(f"{name}_sum", "gauge", help_text, lambda topic: histogram(topic).period_total))
    return metrics


def _average_size(topic: TopicView) -> Number:
    rate = topic.stats.message_rate_in
    return topic.stats.byte_rate_in / rate if rate else 0


def _backlog_bytes(topic: TopicView) -> Number:
    """An estimate, as Pulsar's is: entries of one size, and the slowest subscription counts."""
    entries = topic.storage_entries
    if not entries:
        return 0
    behind = max((each.backlog() for each in topic.subscriptions.values()), default=0)
    return topic.storage_bytes * behind // entries


_TOPIC_METRICS: Final[list[_Metric[TopicView]]] = [
    _Metric("pulsar_subscriptions_count", "gauge", "Subscriptions.", lambda t: len(t.subscriptions)),
    _Metric("pulsar_producers_count", "gauge", "Connected producers.", lambda t: t.producer_count),
    _Metric(
        "pulsar_consumers_count",
        "gauge",
        "Connected consumers.",
        lambda t: sum(each.consumer_count for each in t.subscriptions.values()),
    ),
    _Metric("pulsar_rate_in", "gauge", "Messages in, per second.", lambda t: t.stats.message_rate_in),
    _Metric("pulsar_rate_out", "gauge", "Messages out, per second.", lambda t: t.stats.message_rate_out),
    _Metric("pulsar_throughput_in", "gauge", "Bytes in, per second.", lambda t: t.stats.byte_rate_in),
    _Metric("pulsar_throughput_out", "gauge", "Bytes out, per second.", lambda t: t.stats.byte_rate_out),
    _Metric("pulsar_average_msg_size", "gauge", "Average bytes of a message in.", _average_size),
    _Metric(
        "pulsar_in_messages_total", "counter", "Messages in since the load.", lambda t: t.stats.messages_in
    ),
    _Metric("pulsar_in_bytes_total", "counter", "Bytes in since the load.", lambda t: t.stats.bytes_in),
    _Metric("pulsar_storage_size", "gauge", "Stored bytes, all copies.", lambda t: t.storage_bytes),
    _Metric("pulsar_storage_logical_size", "gauge", "Stored bytes, one copy.", lambda t: t.storage_bytes),
    _Metric(
        "pulsar_storage_backlog_size",
        "gauge",
        "Bytes that the slowest subscription is behind.",
        _backlog_bytes,
    ),
    _Metric(
        "pulsar_storage_write_rate", "gauge", "Entries stored, per second.", lambda t: t.stats.entry_rate_in
    ),
    _Metric(
        "pulsar_msg_backlog",
        "gauge",
        "Entries not acknowledged, over all subscriptions.",
        lambda t: sum(each.backlog() for each in t.subscriptions.values()),
    ),
    *_buckets(
        "pulsar_storage_write_latency",
        "Entries of the last minute by ms from their arrival to being durable.",
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
    _Metric(
        "magnetar_in_entries_total", "counter", "Entries in since the load.", lambda t: t.stats.entries_in
    ),
]

_SUBSCRIPTION_METRICS: Final[list[_Metric[SubscriptionView]]] = [
    _Metric("pulsar_subscription_back_log", "gauge", "Entries not acknowledged.", lambda s: s.backlog()),
    _Metric(
        "pulsar_subscription_back_log_no_delayed",
        "gauge",
        "Entries not acknowledged and not delayed.",
        lambda s: s.backlog(),
    ),
    _Metric(
        "pulsar_subscription_unacked_messages",
        "gauge",
        "Messages sent to consumers and not acknowledged.",
        lambda s: s.unacked_messages,
    ),
    _Metric(
        "pulsar_subscription_blocked_on_unacked_messages",
        "gauge",
        "1 while too many messages are not acknowledged for more to be sent.",
        lambda s: int(s.blocked_on_unacked),
    ),
    _Metric(
        "pulsar_subscription_consumers_count", "gauge", "Connected consumers.", lambda s: s.consumer_count
    ),
    _Metric(
        "pulsar_subscription_msg_rate_out",
        "gauge",
        "Messages out, per second.",
        lambda s: s.stats.message_rate_out,
    ),
    _Metric(
        "pulsar_subscription_msg_throughput_out",
        "gauge",
        "Bytes out, per second.",
        lambda s: s.stats.byte_rate_out,
    ),
    _Metric(
        "pulsar_subscription_msg_rate_redeliver",
        "gauge",
        "Messages sent again, per second.",
        lambda s: s.stats.redelivery_rate,
    ),
    _Metric(
        "pulsar_subscription_msg_ack_rate",
        "gauge",
        "Messages acknowledged, per second.",
        lambda s: s.stats.ack_rate,
    ),
    _Metric(
        "pulsar_out_messages_total", "counter", "Messages out since the load.", lambda s: s.stats.messages_out
    ),
    _Metric("pulsar_out_bytes_total", "counter", "Bytes out since the load.", lambda s: s.stats.bytes_out),
    _Metric(
        "magnetar_subscription_redelivered_messages_total",
        "counter",
        "Messages sent again since the load.",
        lambda s: s.stats.messages_redelivered,
    ),
    _Metric(
        "magnetar_subscription_acked_messages_total",
        "counter",
        "Messages acknowledged since the load.",
        lambda s: s.stats.acks,
    ),
]

_BROKER_SUMS: Final = (
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
    "msg_backlog",
)
"""`pulsar_<name>` summed over the topics is `pulsar_broker_<name>`."""


class _Slices:
    """Says when a slice of work is over, looking at the clock only now and then."""

    __slots__ = ("_clock", "_ends", "_steps")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps = 0
        self._ends = clock() + SLICE_S

    def over(self) -> bool:
        """To be called once a step; the caller lets others run when it is True."""
        self._steps += 1
        if self._steps % _STEPS_PER_LOOK:
            return False
        now = self._clock()
        if now < self._ends:
            return False
        # What others do before the next step counts too: the busier the loop, the shorter our slices.
        self._ends = now + SLICE_S
        return True


class MetricsPage:
    """Renders the page of one broker; keeps label texts from one scrape to the next."""

    def __init__(self, broker: BrokerView, work_clock: Callable[[], float] = time.perf_counter) -> None:
        self._broker = broker
        self._work_clock = work_clock
        self._cluster = f'cluster="{_escape(broker.config.cluster_name)}"'
        self._labels: dict[str, _TopicLabels] = {}

    def render(self) -> Iterator[str]:
        """The page in pieces of about `SLICE_S` of work; the caller lets the event loop turn between them.

        Shows the topics that are loaded when it begins. Figures of one topic may be from different turns.
        """
        topics = list(self._broker.topics.values())
        slices = _Slices(self._work_clock)
        rows: list[tuple[TopicView, _TopicLabels]] = []
        for topic in topics:
            rows.append((topic, self._labels.get(topic.name.full) or self._topic_labels(topic)))
            if slices.over():
                yield ""
        self._labels = {topic.name.full: texts for topic, texts in rows}

        sums: dict[str, Number] = {}
        lines: list[str] = []
        for metric in _TOPIC_METRICS:
            lines.append(metric.head)
            name, value_of, total = metric.name, metric.value, 0.0
            for topic, texts in rows:
                value = value_of(topic)
                total += value
                lines.append(f"{name}{{{texts.topic}}} {value}\n")
                if slices.over():
                    yield "".join(lines)
                    lines.clear()
            sums[name] = total

        for of_subscription in _SUBSCRIPTION_METRICS:
            lines.append(of_subscription.head)
            name, value_of_subscription, total = of_subscription.name, of_subscription.value, 0.0
            for topic, texts in rows:
                # A copy, because subscriptions come and go while the loop turns.
                for key, subscription in list(topic.subscriptions.items()):
                    value = value_of_subscription(subscription)
                    total += value
                    lines.append(f"{name}{{{self._subscription_labels(texts, key)}}} {value}\n")
                    if slices.over():
                        yield "".join(lines)
                        lines.clear()
                if slices.over():
                    yield "".join(lines)
                    lines.clear()
            sums[name] = total

        lines.append(self._namespaces(texts for _, texts in rows))
        lines.append(self._whole_broker(len(rows), sums))
        yield "".join(lines)

    def _topic_labels(self, topic: TopicView) -> _TopicLabels:
        namespace = f'{self._cluster},namespace="{_escape(str(topic.name.namespace))}"'
        return _TopicLabels(namespace, f'{namespace},topic="{_escape(topic.name.full)}"')

    def _subscription_labels(self, texts: _TopicLabels, name: str) -> str:
        text = texts.subscriptions.get(name)
        if text is None:
            if len(texts.subscriptions) > 1024:  # names that came and went
                texts.subscriptions.clear()
            text = texts.subscriptions[name] = f'{texts.topic},subscription="{_escape(name)}"'
        return text

    def _namespaces(self, labels: Iterable[_TopicLabels]) -> str:
        counts: dict[str, int] = {}
        for texts in labels:
            counts[texts.namespace] = counts.get(texts.namespace, 0) + 1
        head = "# HELP pulsar_topics_count Loaded topics.\n# TYPE pulsar_topics_count gauge\n"
        return head + "".join(f"pulsar_topics_count{{{text}}} {count}\n" for text, count in counts.items())

    def _whole_broker(self, topics: int, sums: dict[str, Number]) -> str:
        listener = self._broker.config.listener
        broker = _escape(listener.advertised_address or listener.bind_address)
        cluster = self._cluster
        lines: list[str] = []

        def gauge(name: str, help_text: str, labels: str, value: Number, kind: str = "gauge") -> None:
            lines.append(f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}\n")

        gauge("pulsar_broker_topics_count", "Loaded topics.", cluster, topics)
        for name in _BROKER_SUMS:
            gauge(f"pulsar_broker_{name}", f"Sum of pulsar_{name}.", cluster, sums[f"pulsar_{name}"])
        gauge(
            "pulsar_broker_in_bytes_total",
            "Bytes in, over the loaded topics.",
            f'{cluster},system_topic="false"',
            sums["pulsar_in_bytes_total"],
            "counter",
        )
        gauge(
            "pulsar_broker_out_bytes_total",
            "Bytes out, over the loaded topics.",
            f'{cluster},system_subscription="false"',
            sums["pulsar_out_bytes_total"],
            "counter",
        )
        gauge(
            "pulsar_active_connections",
            "Client connections open now.",
            f'{cluster},broker="{broker}",metric="broker_connection"',
            self._broker.connections,
        )
        gauge("pulsar_version_info", "The release that runs.", f'{cluster},version="{_VERSION}"', 1)
        return "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
