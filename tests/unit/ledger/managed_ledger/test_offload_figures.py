"""How far ledgers are, counted as operators see it."""

from __future__ import annotations

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, SpanOffload
from magnetar.ledger.managed_ledger.offload_figures import (
    OffloadFigures,
    figures_of,
    is_offloaded,
    offloaded_bytes,
)


def span(ledger_id: int, offload: SpanOffload | None = None) -> LedgerSpan:
    found = LedgerSpan(LedgerRef(ledger_id, 1), entries=1, byte_length=100, closed=True)
    found.offload = offload
    return found


def complete(completed_ms: int, *, left: bool = False) -> SpanOffload:
    return SpanOffload(
        1, Offload.COMPLETE, completed_ms=completed_ms, object_bytes=30, left_bookies_ms=5 if left else 0
    )


def test_ledgers_are_counted_by_how_far_they_are() -> None:
    spans = [
        span(1, complete(7, left=True)),
        span(2, complete(9)),
        span(3, complete(8)),
        span(4, SpanOffload(1, Offload.RUNNING)),
        span(5, SpanOffload(1, Offload.WANTED)),
        span(6),
    ]
    assert figures_of(spans) == OffloadFigures(
        waiting=1,
        running=1,
        complete=3,
        left=1,
        byte_length=300,
        object_bytes=90,
        last_ledger_id=2,
        last_completed_ms=9,
    )
    assert figures_of(spans).under_way
    assert not figures_of(spans[:3]).under_way
    assert offloaded_bytes(spans) == 300
    assert [is_offloaded(each) for each in spans] == [True, True, True, False, False, False]
