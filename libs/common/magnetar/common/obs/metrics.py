"""The process-wide Prometheus registry.

Modules declare their counters, gauges and histograms next to the code that moves them, on `REGISTRY`. Figures
per topic are plain attributes rendered by the broker's metrics page, not prometheus-client children.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter

REGISTRY: Final = CollectorRegistry()


def begin_at_zero(counter: Counter, *values: str) -> None:
    """Show the series of these values of the counter's one label before anything was counted.

    Prometheus sees a rise between two samples: an event that makes its own series is a rise for no rate, and
    a dashboard has nothing to show of what never happened.
    """
    for value in values:
        counter.labels(value)
