"""The Prometheus page of topics and subscriptions, rendered by hand from plain attributes.

A client-library child per topic and metric would cost several times the CPU and memory. Here label texts are
made once per topic and kept, and the page comes in pieces, each of about a millisecond of work, so that the
event loop serves messages in between and the page is never whole in memory. What is shown is in
`metric_tables`: of each topic, or of namespaces where exposeTopicLevelMetricsInPrometheus=false.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain

from magnetar.broker.admin.metric_lines import AT_ONCE, Rows
from magnetar.broker.admin.metric_tables import BROKER_SUMS, SUBSCRIPTION_METRICS, TOPIC_METRICS, Number
from magnetar.broker.admin.slices import Slices
from magnetar.broker.admin.view import BrokerView, SubscriptionView, TopicView


@dataclass(slots=True)
class _TopicLabels:
    """Label texts of one topic, made once."""

    namespace: str
    topic: str
    subscriptions: dict[str, str] = field(default_factory=dict)


class MetricsPage:
    """Renders the page of one broker; keeps label texts from one scrape to the next."""

    def __init__(self, broker: BrokerView, work_clock: Callable[[], float] = time.perf_counter) -> None:
        self._broker = broker
        self._work_clock = work_clock
        self._cluster = f'cluster="{_escape(broker.config.cluster_name)}"'
        self._version = _escape(version("magnetar-broker"))
        self._labels: dict[str, _TopicLabels] = {}

    def render(self) -> Iterator[str]:
        """The page in pieces of about a millisecond of work; the caller lets the event loop turn in between.

        Shows the topics and subscriptions that are there when it begins. Figures of one topic may be from
        different turns.
        """
        slices = Slices(self._work_clock, AT_ONCE)
        topics, subscriptions = Rows[TopicView](), Rows[SubscriptionView]()
        labels: dict[str, _TopicLabels] = {}
        for topic in list(self._broker.topics.values()):
            full = topic.name.full
            texts = labels[full] = self._labels.get(full) or self._topic_labels(topic)
            topics.add(topic, texts.topic, texts.namespace)
            # A copy, because subscriptions come and go while the loop turns.
            for key, subscription in list(topic.subscriptions.items()):
                text = self._subscription_labels(texts, key)
                subscriptions.add(subscription, text, texts.namespace)
                if slices.over():
                    yield ""
            if slices.over():
                yield ""
        self._labels = labels

        slices = Slices(self._work_clock, 1)
        each = self._broker.config.metrics.topic_level
        sums: dict[str, Number] = {}
        lines: list[str] = []
        for name, (some, total) in chain(
            topics.pieces(TOPIC_METRICS, each=each), subscriptions.pieces(SUBSCRIPTION_METRICS, each=each)
        ):
            lines += some
            sums[name] = sums.get(name, 0) + total
            if slices.over():
                yield "".join(lines)
                lines.clear()

        lines.append(self._namespaces(labels.values()))
        lines.append(self._whole_broker(len(labels), sums))
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
        for name in BROKER_SUMS:
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
        of_connections = f'{cluster},broker="{broker}",metric="broker_connection"'
        active, accepted = self._broker.connections, self._broker.connections_accepted
        gauge("pulsar_active_connections", "Client connections open now.", of_connections, active)
        gauge(
            "pulsar_connection_created_total_count",
            "Client connections since the start.",
            of_connections,
            accepted,
        )
        gauge(
            "pulsar_connection_closed_total_count",
            "Client connections that have ended.",
            of_connections,
            accepted - active,
        )
        gauge("pulsar_version_info", "The release that runs.", f'{cluster},version="{self._version}"', 1)
        return "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
