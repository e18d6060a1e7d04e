"""What the sharing of load counts. Names are Pulsar's where it has the same figure."""

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
        f"Percent of {what} that this broker used when it last looked at its load.",
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
    "magnetar_load_leader", "1 on the broker that assigns bundles and evens out the load.", registry=REGISTRY
)
ASSIGNED: Final = Counter(
    "magnetar_load_assignments",
    "Bundles that this broker, as the leader, gave to a broker, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
MOVED_BUNDLES: Final = Counter(
    "pulsar_lb_unload_bundle",
    "Bundles that this broker, as the leader, had moved because of load.",
    registry=REGISTRY,
)
GIVING_BROKERS: Final = Counter(
    "pulsar_lb_unload_broker",
    "Times that this broker, as the leader, had a broker give bundles away because of load.",
    registry=REGISTRY,
)
FAILED_MOVES: Final = Counter(
    "magnetar_load_moves_failed",
    "Bundles that were to be moved because of load and were not.",
    registry=REGISTRY,
)
SPLITS: Final = Counter(
    "pulsar_lb_bundles_split",
    "Bundles of this broker that were split because they had too much.",
    registry=REGISTRY,
)
REPORTS: Final = Counter(
    "magnetar_load_reports", "Load reports that this broker sent, by outcome.", ["outcome"], registry=REGISTRY
)


def show_usage(used: Mapping[str, float], cluster: str, broker: str) -> None:
    """Have the page show how much of each resource is used, in percent."""
    for resource, gauge in USAGE.items():
        gauge.labels(cluster, broker, _METRIC).set(used[resource])
