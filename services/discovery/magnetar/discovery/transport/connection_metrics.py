"""Metrics of connections and commands."""

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
    "Current client connections, by purpose: lookups, or proxied to brokers.",
    ["kind"],
    registry=REGISTRY,
)

ACCEPTED: Final = Counter(
    "magnetar_discovery_connections_accepted", "Client connections since the start.", registry=REGISTRY
)

REFUSED_CONNECTIONS: Final = Counter(
    "magnetar_discovery_connections_refused",
    "Connections refused by maxConcurrentInboundConnections.",
    registry=REGISTRY,
)

PROTOCOL_ERRORS: Final = Counter(
    "magnetar_discovery_protocol_errors",
    "Connections closed because of a protocol violation, by error.",
    ["reason"],
    registry=REGISTRY,
)

COMMANDS: Final = Counter(
    "magnetar_discovery_commands",
    "Answered commands, by command and result: `ok` or the error code.",
    ["command", "code"],
    registry=REGISTRY,
)


@cache
def commands_of(kind: BaseCommand.Type.ValueType, code: ServerError.ValueType | None = None) -> Counter:
    """Return the counter of a command type and an error code; None is success."""
    return COMMANDS.labels(BaseCommand.Type.Name(kind), "ok" if code is None else ServerError.Name(code))


ANSWER_LATENCY: Final = LatencyHistogram(
    "magnetar_discovery_answer_latency_seconds", "Time to answer client commands, mostly lookups."
)


PROXIED_BYTES: Final = Counter(
    "magnetar_discovery_proxied_bytes",
    "Bytes forwarded between clients and brokers, by sender.",
    ["source"],
    registry=REGISTRY,
)

PROXY_REFUSED: Final = Counter(
    "magnetar_discovery_proxy_refused",
    "Connections that were not proxied: `unknown_broker`: the target is not a broker of the cluster; "
    "`unreachable`: connecting to the broker failed.",
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
    """Metrics under the names of Pulsar's proxy, for existing dashboards."""

    _labelnames: tuple[str, ...] = ()

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Collect the samples for the registry."""
        return [
            GaugeMetricFamily(
                "pulsar_proxy_active_connections",
                "Current client connections, lookup and proxied.",
                _sum(CONNECTIONS),
            ),
            CounterMetricFamily(
                "pulsar_proxy_new_connections", "Client connections since the start.", _sum(ACCEPTED)
            ),
            CounterMetricFamily(
                "pulsar_proxy_rejected_connections",
                "Connections refused by maxConcurrentInboundConnections.",
                _sum(REFUSED_CONNECTIONS),
            ),
            CounterMetricFamily(
                "pulsar_proxy_binary_bytes",
                "Bytes forwarded between clients and brokers, in both directions.",
                _sum(PROXIED_BYTES),
            ),
        ]

    def describe(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        """Describe the metrics when they are registered."""
        return self.collect()


REGISTRY.register(_PulsarNames())
