"""The Prometheus page of topics and subscriptions, rendered by hand from plain attributes.

A client-library child per topic and metric would cost several times the CPU and memory. Here label texts are
created once per topic and kept. The page is produced in pieces of about a millisecond of work, so that the
event loop handles messages in between and the page is never completely in memory. `topic_metrics` defines the
metrics: per topic, or per namespace with exposeTopicLevelMetricsInPrometheus=false; per consumer and producer
(`client_metrics`) only if configured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from typing import Final

from magnetar.broker import lookups
from magnetar.broker.health.readiness import not_ready
from magnetar.broker.latencies import PUBLISH
from magnetar.broker.metrics.client_metrics import CONSUMER_METRICS, PRODUCER_METRICS
from magnetar.broker.metrics.lines import AT_ONCE, Piece, Rows, lines_of
from magnetar.broker.metrics.managed_ledger_metrics import MANAGED_LEDGER_METRICS
from magnetar.broker.metrics.topic_metrics import BROKER_SUMS, SUBSCRIPTION_METRICS, TOPIC_METRICS, Number
from magnetar.broker.metrics.views import MetricsSource, SubscriptionView, TopicView
from magnetar.broker.schemas.figures import SUMMARIES as SCHEMA_SUMMARIES
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.registry import topic_loads
from magnetar.common.obs.latency import summary_lines
from magnetar.common.runtime.work_slices import Slices

_SUMMARIES: Final = (
    (
        "pulsar_broker_publish_latency",
        "Milliseconds from receiving entries to sending their receipts.",
        PUBLISH,
    ),
    ("pulsar_broker_lookup", "Milliseconds from a lookup to its response.", lookups.LATENCY),
    (
        "pulsar_topic_load_times",
        "Milliseconds from the first request for a topic to serving it.",
        topic_loads.LATENCY,
    ),
)


@dataclass(slots=True)
class _TopicLabels:
    """Label texts of one topic, created once."""

    namespace: str
    topic: str
    subscriptions: dict[str, str] = field(default_factory=dict)


class _Clients:
    """Consumers and producers to publish, without those that would repeat the same labels."""

    def __init__(self, *, consumers: bool, producers: bool) -> None:
        self._shows_consumers = consumers
        self._shows_producers = producers
        self._texts: set[str] = set()
        self.consumers = Rows[Consumer]()
        self.producers = Rows[Producer]()

    def add_producers(self, topic: TopicView, labels: str) -> None:
        if self._shows_producers:
            for name, producer in list(topic.producers.items()):
                text = f'{labels},producer_name="{_escape(name)}",producer_id="{producer.producer_id}"'
                self.producers.add(producer, text, "")

    def add_consumers(self, subscription: SubscriptionView, labels: str) -> None:
        if self._shows_consumers:
            for each in list(subscription.consumers):
                text = f'{labels},consumer_name="{_escape(each.name)}",consumer_id="{each.consumer_id}"'
                if text not in self._texts:
                    self._texts.add(text)
                    self.consumers.add(each, text, "")

    def pieces(self) -> Iterator[tuple[str, Piece]]:
        if self._shows_consumers:
            yield from self.consumers.pieces(CONSUMER_METRICS, each=True)
        if self._shows_producers:
            yield from self.producers.pieces(PRODUCER_METRICS, each=True)


class MetricsPage:
    """Renders the page of one broker; keeps label texts between scrapes."""

    def __init__(
        self,
        broker: MetricsSource,
        work_clock: Callable[[], float] = time.perf_counter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._work_clock = work_clock
        self._clock = clock
        self._cluster = f'cluster="{_escape(broker.config.cluster_name)}"'
        self._version = _escape(version("magnetar-broker"))
        self._labels: dict[str, _TopicLabels] = {}

    def render(self) -> Iterator[str]:
        """Yields the page in pieces of about a millisecond of work; the caller yields to the event loop in
        between.

        Covers the topics and subscriptions that exist at the start. Figures of one topic may be from
        different turns.
        """
        slices = Slices(self._work_clock, AT_ONCE)
        topics, ledgers, subscriptions = Rows[TopicView](), Rows[TopicView](), Rows[SubscriptionView]()
        labels: dict[str, _TopicLabels] = {}
        topics_of: dict[str, int] = {}
        managed_ledgers = 0
        config = self._broker.config.metrics
        each = config.topic_level
        clients = _Clients(consumers=each and config.consumer_level, producers=each and config.producer_level)
        for topic in list(self._broker.topics.values()):
            full = topic.name.full
            texts = labels[full] = self._labels.get(full) or self._topic_labels(topic)
            topics.add(topic, texts.topic, texts.namespace)
            topics_of[texts.namespace] = topics_of.get(texts.namespace, 0) + 1
            if topic.name.persistent:
                managed_ledgers += 1
                if config.managed_ledgers:
                    ledgers.add(topic, texts.topic, texts.namespace)
            clients.add_producers(topic, texts.topic)
            # A copy, because subscriptions are created and deleted between turns.
            for key, subscription in list(topic.subscriptions.items()):
                text = self._subscription_labels(texts, key)
                subscriptions.add(subscription, text, texts.namespace)
                clients.add_consumers(subscription, text)
                if slices.over():
                    yield ""
            if (compaction := topic.compaction_subscription()) is not None:
                text = self._subscription_labels(texts, COMPACTION_SUBSCRIPTION)
                subscriptions.add(compaction, text, texts.namespace)
            if slices.over():
                yield ""
        self._labels = labels

        slices = Slices(self._work_clock, 1)
        sums: dict[str, Number] = {}
        lines: list[str] = []
        for name, (some, total) in chain(
            topics.pieces(TOPIC_METRICS, each=each),
            subscriptions.pieces(SUBSCRIPTION_METRICS, each=each),
            ledgers.pieces(MANAGED_LEDGER_METRICS, each=False) if config.managed_ledgers else (),
            clients.pieces(),
        ):
            lines += some
            sums[name] = sums.get(name, 0) + total
            if slices.over():
                yield "".join(lines)
                lines.clear()

        lines.append("# HELP pulsar_topics_count Loaded topics.\n# TYPE pulsar_topics_count gauge\n")
        for some in lines_of("pulsar_topics_count", topics_of):
            lines += some
            if slices.over():
                yield "".join(lines)
                lines.clear()
        for name, help_text, figures in SCHEMA_SUMMARIES:
            lines.append(f"# HELP {name} {help_text}\n# TYPE {name} summary\n")
            for namespace, window in list(figures.latencies.items()):
                text = f'{self._cluster},namespace="{_escape(namespace)}"'
                lines += summary_lines(name, text, window, self._clock())
                if slices.over():
                    yield "".join(lines)
                    lines.clear()
        lines.append(self._whole_broker(len(labels), managed_ledgers, sums))
        yield "".join(lines)

    def _topic_labels(self, topic: TopicView) -> _TopicLabels:
        namespace = f'{self._cluster},namespace="{_escape(str(topic.name.namespace))}"'
        name = topic.name
        if not self._broker.config.metrics.split_partition:
            return _TopicLabels(namespace, f'{namespace},topic="{_escape(name.full)}"')
        base = _escape((name.base if name.partition_index >= 0 else name).full)
        return _TopicLabels(namespace, f'{namespace},topic="{base}",partition="{name.partition_index}"')

    def _subscription_labels(self, texts: _TopicLabels, name: str) -> str:
        text = texts.subscriptions.get(name)
        if text is None:
            if len(texts.subscriptions) > 1024:  # names that no longer exist
                texts.subscriptions.clear()
            text = texts.subscriptions[name] = f'{texts.topic},subscription="{_escape(name)}"'
        return text

    def _whole_broker(self, topics: int, managed_ledgers: int, sums: dict[str, Number]) -> str:
        listener = self._broker.config.listener
        broker = _escape(listener.advertised_address or listener.bind_address)
        cluster = self._cluster
        lines: list[str] = []

        def gauge(name: str, help_text: str, labels: str, value: Number, kind: str = "gauge") -> None:
            lines.append(f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{name}{{{labels}}} {value}\n")

        gauge("pulsar_broker_topics_count", "Loaded topics.", cluster, topics)
        gauge("pulsar_ml_count", "Managed ledgers of loaded persistent topics.", cluster, managed_ledgers)
        for name in BROKER_SUMS:
            gauge(f"pulsar_broker_{name}", f"Sum of pulsar_{name}.", cluster, sums[f"pulsar_{name}"])
        gauge(
            "magnetar_acks_at_risk",
            "Sum of magnetar_subscription_acks_at_risk.",
            cluster,
            sums["magnetar_subscription_acks_at_risk"],
        )
        gauge(
            "pulsar_broker_in_bytes_total",
            "Bytes published since the load, over the loaded topics.",
            f'{cluster},system_topic="false"',
            sums["pulsar_in_bytes_total"],
            "counter",
        )
        gauge(
            "pulsar_broker_out_bytes_total",
            "Bytes delivered since the load, over the loaded topics.",
            f'{cluster},system_subscription="false"',
            sums["pulsar_out_bytes_total"],
            "counter",
        )
        of_connections = f'{cluster},broker="{broker}",metric="broker_connection"'
        active, accepted = self._broker.connections, self._broker.connections_accepted
        gauge("pulsar_active_connections", "Open client connections.", of_connections, active)
        gauge(
            "pulsar_connection_created_total_count",
            "Client connections since the start.",
            of_connections,
            accepted,
        )
        gauge(
            "pulsar_connection_closed_total_count",
            "Closed client connections since the start.",
            of_connections,
            accepted - active,
        )
        ready = int(not_ready(self._broker) is None)
        gauge(
            "pulsar_health",
            "1 while the broker is ready for clients, 0 otherwise.",
            f'{cluster},broker="{broker}",metric="broker_health"',
            ready,
        )
        now = self._clock()
        for name, help_text, window in _SUMMARIES:
            lines.append(f"# HELP {name} {help_text}\n# TYPE {name} summary\n")
            lines += summary_lines(name, cluster, window, now)
        gauge(
            "pulsar_version_info",
            "Version of the running release.",
            f'{cluster},version="{self._version}"',
            1,
        )
        return "".join(lines)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
