"""The brokers of a cluster and the bundles that they own, as the leader tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.console.admin_api import Caller
from magnetar.console.admin_paths import MAGNETAR

BUNDLES_MAX: Final = 1_000
"""Bundles asked for of each broker, those with the most messages."""

LEVELS: Final = 4
"""Levels of load that a map shows, beside none."""


@dataclass(frozen=True, slots=True)
class BundleFigures:
    """A bundle with its owner. Rates are None where the owner's load report does not name it."""

    namespace: str
    bundle: str
    broker: str
    since_ms: int
    rate_in: float | None
    rate_out: float | None
    bytes_in: float | None
    bytes_out: float | None
    topics: int | None
    producers: int | None
    consumers: int | None

    @property
    def rate(self) -> float:
        """Messages in and out a second; 0 if they are not known."""
        return (self.rate_in or 0.0) + (self.rate_out or 0.0)


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """A broker with its load, if it reported one, and its bundles, the busiest first."""

    broker_id: str
    http_url: str
    is_leader: bool
    is_draining: bool
    load_age_ms: int | None
    cpu_percent: float | None
    memory: int | None
    memory_max: int | None
    rate_in: float | None
    rate_out: float | None
    topics: int | None
    bundle_count: int
    bundles: list[BundleFigures] = field(default_factory=list)

    @property
    def memory_share(self) -> float:
        """Part of its memory limit that it uses, from 0 to 1; 0 without a known limit."""
        return (self.memory or 0) / self.memory_max if self.memory_max else 0.0


async def brokers_of(admin: Caller) -> list[BrokerFigures]:
    """Return all brokers by id. Raises as `AdminApi.call`."""
    answer = await admin.get(f"{MAGNETAR}/brokers", limit=BUNDLES_MAX)
    return [_broker(each) for each in answer.get("brokers", [])]


def find_bundle(brokers: list[BrokerFigures], namespace: str, bundle: str) -> BundleFigures | None:
    """Return a bundle; None when no broker owns it, or it is not among those that were told."""
    return next(
        (
            each
            for broker in brokers
            for each in broker.bundles
            if (each.namespace, each.bundle) == (namespace, bundle)
        ),
        None,
    )


def level_of(rate: float, most: float) -> int:
    """Return the level of a bundle's load beside the busiest one: 0 for none, else 1 to LEVELS."""
    if rate <= 0 or most <= 0:
        return 0
    return min(LEVELS, 1 + int(rate / most * LEVELS))


def _broker(row: Mapping[str, Any]) -> BrokerFigures:
    broker_id = str(row["brokerId"])
    return BrokerFigures(
        broker_id,
        str(row.get("httpUrl") or "").rstrip("/"),
        bool(row.get("leader")),
        bool(row.get("draining")),
        row.get("loadAgeMs"),
        row.get("cpuPercent"),
        row.get("memoryBytes"),
        row.get("memoryBytesMax"),
        row.get("msgRateIn"),
        row.get("msgRateOut"),
        row.get("topics"),
        int(row.get("bundleCount", 0)),
        [_bundle(each, broker_id) for each in row.get("bundles", [])],
    )


def _bundle(row: Mapping[str, Any], broker_id: str) -> BundleFigures:
    return BundleFigures(
        str(row["namespace"]),
        str(row["bundle"]),
        broker_id,
        int(row.get("since") or 0),
        row.get("msgRateIn"),
        row.get("msgRateOut"),
        row.get("msgThroughputIn"),
        row.get("msgThroughputOut"),
        row.get("topics"),
        row.get("producers"),
        row.get("consumers"),
    )
