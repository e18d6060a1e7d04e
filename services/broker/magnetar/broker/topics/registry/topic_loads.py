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
    "Topics that could not be loaded; those that do not exist or are not allowed are not counted.",
    ["cluster"],
    registry=REGISTRY,
)

_PENDING: Final = Gauge(
    "pulsar_broker_topic_load_pending_requests",
    "Topics that are being loaded.",
    ["cluster"],
    registry=REGISTRY,
)

LATENCY: Final = LatencyWindow()
"""From the first who asks for a topic to its being served; the metrics page has it as
pulsar_topic_load_times."""


@contextmanager
def counted_load(cluster: str) -> Iterator[None]:
    """One load, which has failed when an exception comes through."""
    # Both are shown from the first one on.
    pending, failed = _PENDING.labels(cluster), _FAILED.labels(cluster)
    try:
        with in_process(pending, LATENCY):
            yield
    except (TopicNotFound, NotAllowed):
        raise  # one client that asks for it again and again is no reason to wake an operator
    except (Exception, asyncio.CancelledError):
        failed.inc()
        raise
