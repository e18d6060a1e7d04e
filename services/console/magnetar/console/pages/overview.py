"""The overview: rates, backlog, storage and health of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from aiohttp import web
from magnetar.console.admin_paths import MAGNETAR, V2
from magnetar.console.errors import AdminRefused, AdminUnreachable
from magnetar.console.pages.bundle_map import BrokerFigures, brokers_of
from magnetar.console.process_watch import Alert, WatchedFigures
from magnetar.console.visit import Visit

T = TypeVar("T")

NAMESPACES_MAX: Final = 50
"""Namespaces shown, those with the largest backlog first."""


@dataclass(slots=True)
class NamespaceFigures:
    """Figures of a namespace at one broker."""

    name: str
    rate_in: float
    rate_out: float
    bytes_in: float
    bytes_out: float
    backlog: float
    storage: float
    producers: int
    consumers: int
    subscriptions: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the cluster, as far as the console knows it."""

    kind: str
    name: str
    state: str
    is_well: bool


@dataclass(slots=True)
class ClusterFigures:
    """Figures of the broker that answers, and the processes of the cluster."""

    namespaces: list[NamespaceFigures] = field(default_factory=list)
    connections: int = 0
    is_healthy: bool = True
    brokers: list[BrokerFigures] = field(default_factory=list)
    bookies: list[dict[str, Any]] = field(default_factory=list)
    under_replicated: int = 0
    processes: list[Process] = field(default_factory=list)
    watched: WatchedFigures = field(default_factory=WatchedFigures)
    alerts: list[Alert] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    """The load report of the broker that answers."""
    problems: list[str] = field(default_factory=list)
    """Why figures are missing."""

    def total(self, name: str) -> float:
        """Return a figure of all namespaces together."""
        return float(sum(getattr(each, name) for each in self.namespaces))


async def _overview(visit: Visit) -> web.Response:
    figures = await cluster_figures(visit)
    prometheus = visit.watch.has_prometheus
    return await visit.page("overview.html", title="Overview", figures=figures, has_prometheus=prometheus)


async def _figures(visit: Visit) -> web.Response:
    figures = await cluster_figures(visit)
    return await visit.page("_overview.html", figures=figures, has_prometheus=visit.watch.has_prometheus)


async def cluster_figures(visit: Visit) -> ClusterFigures:
    """Collect the figures; those that the visitor may not see are missing, with the reason."""
    figures = ClusterFigures()

    async def told(question: Awaitable[T], otherwise: T) -> T:
        try:
            return await question
        except (AdminRefused, AdminUnreachable) as error:
            if str(error) not in figures.problems:
                figures.problems.append(str(error))
            return otherwise

    get = visit.admin.get
    metrics, report, brokers, bookies = await asyncio.gather(
        told(get(f"{V2}/broker-stats/metrics"), []),
        told(get(f"{V2}/broker-stats/load-report"), {}),
        told(brokers_of(visit.admin), []),
        told(get(f"{MAGNETAR}/bookies"), None),
    )
    read_metrics(metrics or [], figures)
    figures.report = report or {}
    figures.brokers = brokers
    if brokers:  # which the visitor may see: then so the open pages of brokers, and alerts
        urls = [(each.broker_id, each.http_url) for each in brokers if each.http_url]
        figures.watched, figures.alerts = await asyncio.gather(
            visit.watch.figures(urls), told(visit.watch.alerts(), [])
        )
    figures.processes += broker_processes(brokers, figures.watched)
    if bookies is not None:
        figures.bookies = bookies.get("bookies", [])
        figures.under_replicated = int(bookies.get("underReplicated", 0))
        figures.processes += [
            Process("bookie", str(each["bookieId"]), str(each["state"]), each["state"] == "up")
            for each in figures.bookies
        ]
        # That list is read from the metadata store, etcd in a cluster.
        figures.processes.append(Process("metadata", "store", "answers", True))
    return figures


def broker_processes(brokers: list[BrokerFigures], watched: WatchedFigures) -> list[Process]:
    """Return the brokers, ready or with the reason why not; those that were not asked are registered."""
    problems = {each.broker_id: each.problem for each in watched.brokers}
    found = []
    for each in brokers:
        problem = problems.get(each.broker_id)
        state = "registered" if problem is None else problem or ("draining" if each.is_draining else "ready")
        found.append(Process("broker", each.broker_id, state, state in ("registered", "ready")))
    return found


def read_metrics(metrics: list[dict[str, Any]], figures: ClusterFigures) -> None:
    """Add the figures of an answer of broker-stats/metrics."""
    for each in metrics:
        values, dimensions = each.get("metrics", {}), each.get("dimensions", {})
        figures.connections += int(values.get("brk_active_connections", 0))
        if "brk_health" in values:
            figures.is_healthy = bool(values["brk_health"])
        if "namespace" in dimensions and "brk_in_rate" in values:
            figures.namespaces.append(
                NamespaceFigures(
                    name=str(dimensions["namespace"]),
                    rate_in=values.get("brk_in_rate", 0.0),
                    rate_out=values.get("brk_out_rate", 0.0),
                    bytes_in=values.get("brk_in_tp_rate", 0.0),
                    bytes_out=values.get("brk_out_tp_rate", 0.0),
                    backlog=values.get("brk_msg_backlog", 0.0),
                    storage=values.get("brk_storage_size", 0.0),
                    producers=int(values.get("brk_no_of_producers", 0)),
                    consumers=int(values.get("brk_no_of_consumers", 0)),
                    subscriptions=int(values.get("brk_no_of_subscriptions", 0)),
                )
            )
    figures.namespaces.sort(key=lambda each: (-each.backlog, -each.rate_in, each.name))


READS = {"/": _overview, "/overview": _figures}
