"""Counters of topic loads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from magnetar.common.errors import NotAllowed, TopicNotFound
from magnetar.common.obs.latency import LatencyWindow, in_process
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Gauge

_FAILED: Final = Counter(
    "topic_load_failed",
    "Failed topic loads, not counting topics that do not exist or are not allowed.",
    ["cluster"],
    registry=REGISTRY,
)

_PENDING: Final = Gauge(
    "pulsar_broker_topic_load_pending_requests",
    "Topics being loaded.",
    ["cluster"],
    registry=REGISTRY,
)

LATENCY: Final = LatencyWindow()
"""Time from the first request for a topic to serving it; published as pulsar_topic_load_times."""


@contextmanager
def counted_load(cluster: str) -> Iterator[None]:
    """Counts one load; it has failed when the block raises."""
    # Both counters are published from the first load on.
    pending, failed = _PENDING.labels(cluster), _FAILED.labels(cluster)
    try:
        with in_process(pending, LATENCY):
            yield
    except (TopicNotFound, NotAllowed):
        raise  # not a server failure: one client that retries must not raise an alert
    except (Exception, asyncio.CancelledError):
        failed.inc()
        raise
