"""What is counted of lookups, whether they come over the binary protocol or over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

_ANSWERS = Counter(
    "pulsar_broker_lookup_answers",
    "Lookups that were answered with the broker that serves the topic, this one or another.",
    ["cluster"],
    registry=REGISTRY,
)

_FAILURES = Counter(
    "pulsar_broker_lookup_failures",
    "Lookups that were answered with an error.",
    ["cluster"],
    registry=REGISTRY,
)


@contextmanager
def counted_lookup(cluster: str) -> Iterator[None]:
    """One lookup, which has failed when an exception comes through."""
    try:
        yield
    except Exception:
        _FAILURES.labels(cluster).inc()
        raise
    _ANSWERS.labels(cluster).inc()
