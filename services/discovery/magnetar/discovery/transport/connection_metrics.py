"""Counters of connections and commands."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from magnetar.common.obs.latency import LatencyHistogram
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from prometheus_client import Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

ASKING: Final = "asking"
TO_BROKERS: Final = "to_brokers"

CONNECTIONS: Final = Gauge(
    "magnetar_discovery_connections",
    "Connections of clients now, by what they are for: asking where topics are, or carried to brokers.",
    ["kind"],
    registry=REGISTRY,
)

ACCEPTED: Final = Counter(
    "magnetar_discovery_connections_accepted", "Connections of clients since the start.", registry=REGISTRY
)

REFUSED_CONNECTIONS: Final = Counter(
    "magnetar_discovery_connections_refused",
    "Connections over maxConcurrentInboundConnections.",
    registry=REGISTRY,
)

PROTOCOL_ERRORS: Final = Counter(
    "magnetar_discovery_protocol_errors",
    "Connections closed because the client broke the protocol, by kind of error.",
    ["reason"],
    registry=REGISTRY,
)

COMMANDS: Final = Counter(
    "magnetar_discovery_commands",
    "Commands that were answered, by command, and `ok` or the code of the error.",
    ["command", "code"],
    registry=REGISTRY,
)


@cache
def commands_of(kind: BaseCommand.Type.ValueType, code: ServerError.ValueType | None = None) -> Counter:
    """The counter of one kind of command with that answer; None is success."""
    return COMMANDS.labels(BaseCommand.Type.Name(kind), "ok" if code is None else ServerError.Name(code))


ANSWER_LATENCY: Final = LatencyHistogram(
    "magnetar_discovery_answer_latency_seconds", "Time to answer commands of clients: lookups, most of them."
)


PROXIED_BYTES: Final = Counter(
    "magnetar_discovery_proxied_bytes",
    "Bytes carried between clients and brokers, by where they came from.",
    ["source"],
    registry=REGISTRY,
)

PROXY_REFUSED: Final = Counter(
    "magnetar_discovery_proxy_refused",
    "Connections that were not carried to a broker: `unknown_broker` names what is no broker of the cluster, "
    "`unreachable` one that could not be connected to.",
    ["reason"],
    registry=REGISTRY,
)
begin_at_zero(PROXY_REFUSED, "unknown_broker", "unreachable")


def _sum(metric: Counter | Gauge) -> float:
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    )


class _PulsarNames(Collector):
    """The figures of Pulsar's proxy under its names, for dashboards that are there already."""

    _labelnames: tuple[str, ...] = ()

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """For the registry."""
        return [
            GaugeMetricFamily(
                "pulsar_proxy_active_connections",
                "Connections of clients now, asking or carried.",
                _sum(CONNECTIONS),
            ),
            CounterMetricFamily(
                "pulsar_proxy_new_connections", "Connections of clients since the start.", _sum(ACCEPTED)
            ),
            CounterMetricFamily(
                "pulsar_proxy_rejected_connections",
                "Connections over maxConcurrentInboundConnections.",
                _sum(REFUSED_CONNECTIONS),
            ),
            CounterMetricFamily(
                "pulsar_proxy_binary_bytes",
                "Bytes carried between clients and brokers, both ways.",
                _sum(PROXIED_BYTES),
            ),
        ]

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """For the registry, when it is registered."""
        return self.collect()


REGISTRY.register(_PulsarNames())
