"""Figures of schema operations by namespace, under Pulsar's names."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.latency import LatencyWindow
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

NAMESPACES_MAX: Final = 10_000
"""Maximum namespaces that figures tell apart; those of further ones are not recorded."""


class OperationFigures:
    """Latencies of one operation by namespace, and its failures."""

    def __init__(self, failures: Counter) -> None:
        self.latencies: dict[str, LatencyWindow] = {}
        """Latencies of successful operations."""
        self._failures = failures
        self._failed: set[str] = set()

    def succeeded(self, namespace: NamespaceName, now: float, seconds: float) -> None:
        """Records an operation that succeeded; `now` is monotonic, in seconds."""
        label = str(namespace)
        window = self.latencies.get(label)
        if window is None:
            if len(self.latencies) >= NAMESPACES_MAX:
                return
            window = self.latencies[label] = LatencyWindow()
            self._failed.add(label)
            self._failures.labels(label)  # shown from now on, at 0
        window.observe(now, seconds)

    def failed(self, namespace: NamespaceName) -> None:
        """Records an operation that failed."""
        label = str(namespace)
        if label in self._failed or len(self._failed) < NAMESPACES_MAX:
            self._failed.add(label)
            self._failures.labels(label).inc()


GET: Final = OperationFigures(
    Counter(
        "pulsar_schema_get_ops_failed",
        "Requests for a schema that failed; one that does not exist is no failure.",
        ["namespace"],
        registry=REGISTRY,
    )
)

PUT: Final = OperationFigures(
    Counter(
        "pulsar_schema_put_ops_failed",
        "Schemas of producers, consumers and the admin API that were refused or could not be stored.",
        ["namespace"],
        registry=REGISTRY,
    )
)

DELETE: Final = OperationFigures(
    Counter(
        "pulsar_schema_del_ops_failed",
        "Deletions of schemas that failed.",
        ["namespace"],
        registry=REGISTRY,
    )
)

SUMMARIES: Final = (
    ("pulsar_schema_get_ops_latency", "Milliseconds of a request for a schema.", GET),
    ("pulsar_schema_put_ops_latency", "Milliseconds of comparing a schema and storing a new one.", PUT),
    ("pulsar_schema_del_ops_latency", "Milliseconds of a deletion of schemas.", DELETE),
)
"""Name and meaning of each summary on the metrics page."""

COMPATIBLE: Final = Counter(
    "pulsar_schema_compatible",
    "Schemas of producers, consumers and the admin API that fit the schemas of their topic.",
    ["namespace"],
    registry=REGISTRY,
)

INCOMPATIBLE: Final = Counter(
    "pulsar_schema_incompatible",
    "Schemas of producers, consumers and the admin API that do not fit the schemas of their topic.",
    ["namespace"],
    registry=REGISTRY,
)
