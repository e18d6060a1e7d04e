"""Metrics of metadata operations, under Pulsar's names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from magnetar.common.errors import UnknownOutcome, VersionMismatch
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Histogram

Kind = Literal["get", "put"]
"""Kind of operation: `get` for reads and listings, `put` for transactions and sessions."""

_LATENCY: Final = Histogram(
    "pulsar_metadata_store_ops_latency_ms",
    "Time for metadata to answer, ms; type=get: reads and listings, put: whatever changes something. "
    "status=fail: it did not answer, or refused.",
    ["name", "type", "status"],
    buckets=(1, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000),
    registry=REGISTRY,
)
_PUT_BYTES: Final = Counter(
    "pulsar_metadata_store_put_bytes", "Bytes sent to be written in metadata.", ["name"], registry=REGISTRY
)
_UNKNOWN: Final = Counter(
    "magnetar_metadata_unknown_outcomes",
    "Writes to metadata that were not answered: they may have happened, and are looked after.",
    registry=REGISTRY,
)

_NAME: Final = "metadata-store"
_CLOCKS: Final = {
    (kind, status): _LATENCY.labels(_NAME, kind, status)
    for kind in ("get", "put")
    for status in ("success", "fail")
}
_BYTES: Final = _PUT_BYTES.labels(_NAME)


@contextmanager
def timed(kind: Kind) -> Iterator[None]:
    """Measures one operation; an exception counts as a failure. Cancelled operations are not counted."""
    now = asyncio.get_running_loop().time
    began = now()
    try:
        yield
    except Exception as error:
        _CLOCKS[kind, "fail"].observe((now() - began) * 1000)
        if isinstance(error, UnknownOutcome):
            _UNKNOWN.inc()
        raise
    _CLOCKS[kind, "success"].observe((now() - began) * 1000)


def noting(kind: Kind) -> Callable[[asyncio.Future[Any]], None]:
    """Starts measuring; returns a callback for the operation's future."""
    now = asyncio.get_running_loop().time
    began = now()

    def note(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            error = done.exception()
            answered = error is None or isinstance(error, VersionMismatch)
            status = "success" if answered else "fail"
            _CLOCKS[kind, status].observe((now() - began) * 1000)

    return note


def count_put(byte_count: int) -> None:
    """Counts bytes sent in writes."""
    _BYTES.inc(byte_count)
