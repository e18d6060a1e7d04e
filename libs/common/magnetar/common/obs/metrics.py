"""The process-wide Prometheus registry.

Modules declare their counters, gauges and histograms next to the code that moves them, on `REGISTRY`. Figures
per topic are plain attributes rendered by the broker's metrics page, not prometheus-client children.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

REGISTRY: Final = CollectorRegistry()
