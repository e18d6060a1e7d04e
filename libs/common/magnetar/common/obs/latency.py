"""Latencies: quantiles of the last minute, and counts, sums and buckets since the start.

One observation costs a search among some seventy bounds, about a third of a microsecond: observe batches,
requests or syncs, never single messages. The quantiles match Pulsar's and BookKeeper's summaries; unlike
quantiles, the buckets can be summed across processes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

HALF_WINDOW_S: Final = 30.0

_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)

BOUNDS_MS: Final = tuple(round(step * 10.0**power, 6) for power in range(-2, 5) for step in _STEPS)
"""Upper bounds of the buckets: 10 us to 80 s, each at most a third above the one before."""

SHOWN_S: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
"""Bucket bounds of an exported histogram, in seconds; each is also in BOUNDS_MS."""

_SHOWN_TEXTS: Final = tuple(map(str, map(floatToGoString, SHOWN_S)))

_SHOWN_AT: Final = tuple(BOUNDS_MS.index(round(bound * 1000, 6)) for bound in SHOWN_S)


class LatencyWindow:
    """The latencies of one operation. `now` is monotonic, in seconds."""

    __slots__ = ("_before", "_current", "_previous", "_since", "count", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self._before = [0] * (len(BOUNDS_MS) + 1)
        # Clears data older than the two half windows.
        self._current = [0] * (len(BOUNDS_MS) + 1)
        self._previous = [0] * (len(BOUNDS_MS) + 1)
        self._since = 0.0

    def observe(self, now: float, seconds: float, count: int = 1) -> None:
        """Records `count` operations with this latency."""
        if now - self._since >= HALF_WINDOW_S:
            self._turn(now)
        milliseconds = seconds * 1000
        self.count += count
        self.sum_ms += milliseconds * count
        self._current[bisect_left(BOUNDS_MS, milliseconds)] += count

    def quantiles_ms(self, now: float) -> Iterator[tuple[float, float]]:
        """Returns (quantile, upper bound in ms) over the last 30 to 60 seconds; NaN without observations."""
        if now - self._since >= HALF_WINDOW_S:
            self._turn(now)
        buckets = [a + b for a, b in zip(self._current, self._previous, strict=True)]
        total = sum(buckets)
        if not total:
            yield from ((quantile, float("nan")) for quantile in QUANTILES)
            return
        place, seen = 0, buckets[0]
        for quantile in QUANTILES:
            while seen < quantile * total:
                place += 1
                seen += buckets[place]
            yield quantile, BOUNDS_MS[min(place, len(BOUNDS_MS) - 1)]

    def at_most(self) -> list[int]:
        """Returns, for each bound of SHOWN_S, the number of operations since the start within it."""
        shown, seen, place = [], 0, 0
        for at in _SHOWN_AT:
            for index in range(place, at + 1):
                seen += self._before[index] + self._previous[index] + self._current[index]
            place = at + 1
            shown.append(seen)
        return shown

    def _turn(self, now: float) -> None:
        age_s = now - self._since
        self._since = now
        self._keep(self._previous)
        self._previous = self._current
        self._current = [0] * len(self._previous)
        if age_s >= 2 * HALF_WINDOW_S:
            self._keep(self._previous)
            self._previous = [0] * len(self._previous)

    def _keep(self, buckets: list[int]) -> None:
        self._before = [a + b for a, b in zip(self._before, buckets, strict=True)]


@contextmanager
def in_process(pending: Gauge, latency: LatencyWindow) -> Iterator[None]:
    """Measures one operation: counted in `pending` while it runs, observed unless it raises."""
    pending.inc()
    began = time.monotonic()
    try:
        yield
    finally:
        pending.dec()
    now = time.monotonic()
    latency.observe(now, now - began)


class Latency:
    """Latencies of one kind of request, with successes and failures apart."""

    __slots__ = ("failed", "succeeded")

    def __init__(self) -> None:
        self.succeeded = LatencyWindow()
        self.failed = LatencyWindow()

    def observe(self, now: float, seconds: float, *, success: bool = True, count: int = 1) -> None:
        """Records `count` requests with this latency."""
        (self.succeeded if success else self.failed).observe(now, seconds, count)

    def window(self, *, success: bool) -> LatencyWindow:
        """Latencies of successful or failed operations."""
        return self.succeeded if success else self.failed


class LatencyHistogram(LatencyWindow, Collector):
    """A LatencyWindow exported by itself as a histogram in seconds."""

    _labelnames: tuple[str, ...] = ()

    def __init__(self, name: str, help_text: str, registry: CollectorRegistry = REGISTRY) -> None:
        """Creates and registers the histogram; `name` must end in `_seconds`."""
        super().__init__()
        self.name = name
        self._help = help_text
        registry.register(self)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Returns the metric for the registry."""
        buckets = [*zip(_SHOWN_TEXTS, map(float, self.at_most()), strict=True), ("+Inf", float(self.count))]
        return [HistogramMetricFamily(self.name, self._help, buckets, self.sum_ms / 1000)]

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """Returns the metric's description for the registry."""
        return [HistogramMetricFamily(self.name, self._help)]


def summary_lines(name: str, labels: str, window: LatencyWindow, now: float) -> Iterator[str]:
    """Returns the samples of a summary in milliseconds, as in Pulsar and BookKeeper. `labels` is formatted
    text.
    """
    for quantile, value in window.quantiles_ms(now):
        shown = "NaN" if value != value else f"{value:g}"
        yield f'{name}{{{labels}{"," if labels else ""}quantile="{quantile}"}} {shown}\n'
    braced = f"{{{labels}}}" if labels else ""
    yield f"{name}_count{braced} {window.count}\n{name}_sum{braced} {window.sum_ms:.3f}\n"


def histogram_lines(name: str, window: LatencyWindow) -> Iterator[str]:
    """Returns the samples of a histogram in seconds for an unregistered window; `name` ends in `_seconds`."""
    for bound, count in zip(_SHOWN_TEXTS, window.at_most(), strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}\n'
    yield f'{name}_bucket{{le="+Inf"}} {window.count}\n'
    yield f"{name}_count {window.count}\n{name}_sum {window.sum_ms / 1000:.6f}\n"
