"""Metrics of load balancing. Names are Pulsar's where it has the same figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Gauge

_LABELS: Final = ["cluster", "broker", "metric"]
_METRIC: Final = "loadBalancing"

USAGE: Final = {
    resource: Gauge(
        f"pulsar_lb_{resource}_usage",
        f"Percent of {what} that this broker used at the last measurement of its load.",
        _LABELS,
        registry=REGISTRY,
    )
    for resource, what in {
        "cpu": "one processor",
        "memory": "the machine's memory",
        "bandwidth_in": "loadBalancerOverrideBrokerNicSpeedGbps, published,",
        "bandwidth_out": "loadBalancerOverrideBrokerNicSpeedGbps, delivered,",
    }.items()
}

IS_LEADER: Final = Gauge(
    "magnetar_load_leader", "1 on the leader, which assigns bundles and rebalances.", registry=REGISTRY
)
ASSIGNED: Final = Counter(
    "magnetar_load_assignments",
    "Bundle assignments of this broker as the leader, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
MOVED_BUNDLES: Final = Counter(
    "pulsar_lb_unload_bundle",
    "Bundles moved because of load by this broker as the leader.",
    registry=REGISTRY,
)
GIVING_BROKERS: Final = Counter(
    "pulsar_lb_unload_broker",
    "Shedding decisions of this broker as the leader, one per broker that sheds.",
    registry=REGISTRY,
)
FAILED_MOVES: Final = Counter(
    "magnetar_load_moves_failed",
    "Failed bundle moves because of load.",
    registry=REGISTRY,
)
SPLITS: Final = Counter(
    "pulsar_lb_bundles_split",
    "Bundles of this broker that were split because they exceeded a limit.",
    registry=REGISTRY,
)
REPORTS: Final = Counter(
    "magnetar_load_reports", "Load reports that this broker sent, by outcome.", ["outcome"], registry=REGISTRY
)


def show_usage(used: Mapping[str, float], cluster: str, broker: str) -> None:
    """Sets the usage gauges of all resources, in percent."""
    for resource, gauge in USAGE.items():
        gauge.labels(cluster, broker, _METRIC).set(used[resource])
