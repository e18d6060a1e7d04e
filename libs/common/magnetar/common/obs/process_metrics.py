"""What every service's metrics page ends with: the process itself, and what its modules declare."""

from __future__ import annotations

from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of a metrics page: Prometheus's text format."""

_PROCESS: Final = CollectorRegistry()
ProcessCollector(registry=_PROCESS)
PlatformCollector(registry=_PROCESS)
GCCollector(registry=_PROCESS)


def process_page() -> bytes:
    """CPU, memory, descriptors and start of the process, its interpreter, then REGISTRY."""
    return generate_latest(_PROCESS) + generate_latest(REGISTRY)
