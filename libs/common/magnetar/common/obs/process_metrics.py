"""Metrics of every service: the process, and the metrics that modules declare."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of a metrics page: Prometheus's text format."""

_PROCESS: Final = CollectorRegistry()
ProcessCollector(registry=_PROCESS)
PlatformCollector(registry=_PROCESS)
GCCollector(registry=_PROCESS)


class _Source(Protocol):
    def collect(self) -> Iterable[Metric]: ...


def process_page(cluster: str | None = None, names: Collection[str] = ()) -> bytes:
    """Returns process, interpreter and REGISTRY metrics as a page.

    With a `cluster`, every sample gets it as a label, as on a broker's page. With `names`, only
    samples of REGISTRY with these names.
    """
    sources: tuple[_Source, ...] = (_PROCESS, REGISTRY)
    if names:
        sources = (REGISTRY.restricted_registry(names),)
    return b"".join(generate_latest(each if cluster is None else _of(each, cluster)) for each in sources)


def _of(registry: _Source, cluster: str) -> CollectorRegistry:
    labeled = CollectorRegistry()
    labeled.register(_OfCluster(registry, cluster))
    return labeled


class _OfCluster(Collector):
    """The samples of a registry with a cluster label added where it is missing."""

    def __init__(self, registry: _Source, cluster: str) -> None:
        self._registry = registry
        self._label = {"cluster": cluster}

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            # Collectors create new metrics for each page, so they may be changed.
            metric.samples = [each._replace(labels=self._label | each.labels) for each in metric.samples]
            yield metric
