from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.ack_state import AckDelta, AckState
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans

ENTRIES, LOT = 1_000, 10


def _acks(state: AckState) -> dict[str, Callable[[int], object]]:
    return {
        "many": lambda first: state.ack_many(5, range(first, first + LOT)),
        "range": lambda first: state.ack_range(5, first, first + LOT - 1),
        "cumulative": lambda first: state.ack_cumulative(Position(5, first + LOT - 1)),
    }


@pytest.mark.parametrize("way", ["many", "range", "cumulative"])
def test_an_acknowledgement_looks_at_what_it_acknowledges_and_not_at_all_that_was_redelivered(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    spans = LedgerSpans()
    spans.add(LedgerSpan(LedgerRef(5, 1), entries=ENTRIES))
    state = AckState(spans, Position(5, -1), durable=True)
    for entry_id in range(ENTRIES):
        state.count_redelivery(5, entry_id)
        state.ack_batch(5, entry_id, 1, 2)
    looked_at = 0
    is_acked = AckState.is_acked

    def counting(self: AckState, ledger_id: int, entry_id: int) -> bool:
        nonlocal looked_at
        looked_at += 1
        return is_acked(self, ledger_id, entry_id)

    monkeypatch.setattr(AckState, "is_acked", counting)
    for first in range(0, ENTRIES, LOT):
        assert state.delivery_count(5, first) == 1
        _acks(state)[way](first)
        assert state.delivery_count(5, first + LOT - 1) == 0
        assert state.batch_acked(5, first + LOT - 1) == 0
    assert not state.has_entry_state
    assert looked_at <= 2 * ENTRIES


def test_impossible_positions_are_ignored() -> None:
    spans = LedgerSpans()
    spans.add(LedgerSpan(LedgerRef(5, 1), entries=ENTRIES))
    state = AckState(spans, Position(5, -1), durable=True)
    beyond = [-1, ENTRIES, 2**32 - 1, 2**32, 2**64 - 1]
    assert state.ack_many(5, [*range(10, 20), *beyond]) == 10
    assert state.ack_many(5, [*range(10, 30), ENTRIES, 2**32 - 1]) == 10
    assert state.ack_many(5, range(10)) == 10
    assert state.mark_delete == Position(5, 29)
    assert state.ack_many(5, range(20, 40)) == 10
    assert (state.mark_delete, state.backlog()) == (Position(5, 39), ENTRIES - 40)


def test_records_say_where_a_cursor_stands_in_any_order() -> None:
    spans = LedgerSpans()
    spans.add(LedgerSpan(LedgerRef(5, 1), entries=ENTRIES))
    state = AckState(spans, Position(5, -1), durable=True)
    for entry_id in (3, 8, 5):
        state.apply(AckDelta(Position(5, entry_id)))
    assert state.mark_delete == Position(5, 8)
