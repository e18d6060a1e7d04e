"""Which ledgers may go: whole ones, closed ones, from the front, behind the slowest durable cursor."""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.trimming import trimmable


def spans(*closed: bool) -> list[LedgerSpan]:
    return [
        LedgerSpan(LedgerRef(10 + number, 0), entries=5, closed=each) for number, each in enumerate(closed)
    ]


def test_a_ledger_goes_when_the_slowest_cursor_is_at_its_end() -> None:
    ledgers = spans(True, True, True, False)
    assert trimmable(ledgers, Position(-1, -1)) == 0
    assert trimmable(ledgers, Position(10, 3)) == 0
    assert trimmable(ledgers, Position(10, 4)) == 1
    assert trimmable(ledgers, Position(11, -1)) == 1
    assert trimmable(ledgers, Position(12, 3)) == 2
    assert trimmable(ledgers, Position(13, 4)) == 3


def test_without_durable_cursors_every_closed_ledger_at_the_front_goes() -> None:
    assert trimmable(spans(True, True, False), None) == 2
    assert trimmable(spans(True, False, True), None) == 1
    assert trimmable(spans(False), None) == 0
    assert trimmable([], None) == 0
