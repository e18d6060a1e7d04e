"""Counters of lookups, over the binary protocol and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.common.obs.latency import LatencyWindow, in_process
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Gauge

_ANSWERS = Counter(
    "pulsar_broker_lookup_answers",
    "Lookups answered with the broker that serves the topic, this one or another.",
    ["cluster"],
    registry=REGISTRY,
)

_FAILURES = Counter(
    "pulsar_broker_lookup_failures",
    "Lookups answered with an error.",
    ["cluster"],
    registry=REGISTRY,
)

_PENDING = Gauge(
    "pulsar_broker_lookup_pending_requests",
    "Lookups in progress.",
    ["cluster"],
    registry=REGISTRY,
)

LATENCY: Final = LatencyWindow()
"""Time from a lookup to its response, in this process; published as pulsar_broker_lookup."""


@contextmanager
def counted_lookup(cluster: str) -> Iterator[None]:
    """Counts one lookup; it has failed when the block raises."""
    # Both counters are published from the first lookup on.
    pending, failed = _PENDING.labels(cluster), _FAILURES.labels(cluster)
    try:
        with in_process(pending, LATENCY):
            yield
    except Exception:
        failed.inc()
        raise
    _ANSWERS.labels(cluster).inc()
