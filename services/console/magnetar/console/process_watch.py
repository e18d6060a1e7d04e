"""Latencies and readiness of brokers, from their open pages, and firing alerts, from a Prometheus.

Pages are read without any visitor's token, so what they say may be kept for all visitors: the pages of the
last minute, to tell the latencies of that minute.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from magnetar.console.admin_api import AdminApi
from magnetar.console.errors import AdminUnreachable
from magnetar.console.latency_histograms import Buckets, added, quantile, read_histograms, since

BROKERS_MAX: Final = 50
"""Brokers whose pages are read."""

FRESH_S: Final = 4.0
"""Seconds for which figures are not read again."""

WINDOW_S: Final = 60.0
"""Seconds that latencies are about, once pages of that age are known."""

ALERTS_MAX: Final = 50

HISTOGRAMS: Final = {
    "magnetar_publish_latency_seconds": "publish",
    "magnetar_storage_write_latency_seconds": "storage write",
    "magnetar_dispatch_latency_seconds": "dispatch",
    "magnetar_end_to_end_latency_seconds": "end to end",
}
"""Names that pages show for histograms; docs/metrics.md says from when to when each one is."""

_QUERY: Final = "&".join(f"{quote('name[]')}={name}_bucket" for name in HISTOGRAMS)


@dataclass(frozen=True, slots=True)
class Latency:
    """A latency of all brokers together."""

    name: str
    p50_ms: float
    p99_ms: float
    count: int
    """Samples that it is made of."""


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """Whether a broker is ready."""

    broker_id: str
    problem: str
    """Why it is not ready; empty if it is."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires."""

    name: str
    severity: str
    text: str
    since: str


@dataclass(slots=True)
class WatchedFigures:
    """The state of a cluster's brokers."""

    latencies: list[Latency] = field(default_factory=list)
    window_s: float = 0.0
    """Seconds that the latencies are about; 0: since the brokers' start."""
    brokers: list[BrokerHealth] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Page:
    read_s: float
    histograms: dict[str, Buckets]


class ProcessWatch:
    """Reads pages of brokers, for all visitors at once. Create it on the event loop that uses it."""

    def __init__(self, api: AdminApi, prometheus_url: str) -> None:
        self._api = api
        self._prometheus = prometheus_url.rstrip("/")
        self._pages: dict[str, deque[_Page]] = {}
        self._lock = asyncio.Lock()
        self._figures = WatchedFigures()
        self._read: tuple[float, tuple[tuple[str, str], ...]] = float("-inf"), ()

    @property
    def has_prometheus(self) -> bool:
        return bool(self._prometheus)

    async def figures(self, brokers: Sequence[tuple[str, str]]) -> WatchedFigures:
        """Returns the figures of brokers, given as (id, URL of HTTP). One that does not answer is told."""
        asked = tuple(brokers[:BROKERS_MAX])
        now = asyncio.get_running_loop().time
        async with self._lock:
            if now() - self._read[0] < FRESH_S and self._read[1] == asked:
                return self._figures
            health = await asyncio.gather(*(self._look(name, url) for name, url in asked))
            self._read = now(), asked
            self._forget({url for _, url in asked}, now())
            self._figures = self._summed(list(health))
            return self._figures

    async def alerts(self) -> list[Alert]:
        """Returns the alerts that fire, critical ones first. Raises AdminUnreachable."""
        if not self._prometheus:
            return []
        status, text = await self._api.fetch(f"{self._prometheus}/api/v1/alerts")
        try:
            rows = json.loads(text)["data"]["alerts"]
            found = [_alert(each) for each in rows if each.get("state") == "firing"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AdminUnreachable(
                f"{self._prometheus} answers with status {status}, and not as a Prometheus does"
            ) from error
        found.sort(key=lambda each: (each.severity != "critical", each.severity, each.name, each.since))
        return found[:ALERTS_MAX]

    async def _look(self, name: str, url: str) -> BrokerHealth:
        try:
            (status, text), (_, page) = await asyncio.gather(
                self._api.fetch(f"{url}/readyz"), self._api.fetch(f"{url}/metrics?{_QUERY}")
            )
        except AdminUnreachable as error:
            return BrokerHealth(name, str(error))
        found = read_histograms(page, HISTOGRAMS)
        self._pages.setdefault(url, deque()).append(_Page(asyncio.get_running_loop().time(), found))
        return BrokerHealth(name, "" if status == 200 else text[:300] or f"status {status}")

    def _forget(self, urls: set[str], now: float) -> None:
        """Keep one page that is as old as the window, or the oldest, and the later ones."""
        for url in [each for each in self._pages if each not in urls]:
            del self._pages[url]
        for pages in self._pages.values():
            while len(pages) > 1 and now - pages[1].read_s >= WINDOW_S:
                pages.popleft()

    def _summed(self, health: list[BrokerHealth]) -> WatchedFigures:
        figures = WatchedFigures(brokers=health)
        known = [pages for pages in self._pages.values() if pages]
        figures.window_s = min((each[-1].read_s - each[0].read_s for each in known), default=0.0)
        for metric, name in HISTOGRAMS.items():
            parts = []
            for pages in known:
                newest, oldest = pages[-1].histograms.get(metric, {}), pages[0].histograms.get(metric, {})
                parts.append(newest if not figures.window_s else since(newest, oldest))
            total = added(parts)
            half, most = quantile(0.5, total), quantile(0.99, total)
            if half is not None and most is not None:
                count = int(max(total.values()))
                figures.latencies.append(Latency(name, half * 1000, most * 1000, count))
        return figures


def _alert(row: Any) -> Alert:
    labels, notes = row.get("labels", {}), row.get("annotations", {})
    return Alert(
        str(labels.get("alertname", "unnamed"))[:200],
        str(labels.get("severity", ""))[:40],
        str(notes.get("description") or notes.get("summary") or "")[:500],
        str(row.get("activeAt", ""))[:19].replace("T", " "),
    )
