"""The process-wide Prometheus registry.

Modules declare their counters, gauges and histograms next to the code that moves them, on `REGISTRY`. Figures
per topic are plain attributes rendered by the broker's metrics page, not prometheus-client children.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

REGISTRY: Final = CollectorRegistry()


def begin_at_zero(counter: Counter, *values: str) -> None:
    """Creates the series for these values of the counter's only label at 0.

    Prometheus computes a rate between two samples: a series created by its first event would show no
    increase, and a dashboard would show nothing for events that never happened.
    """
    for value in values:
        counter.labels(value)
