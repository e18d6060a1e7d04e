"""Which transaction a subscription waits for, in words."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from magnetar.broker.subscriptions.limits.open_transactions import blocked_s, blocking, open_transactions
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap

READ = Position(1, 3)
FIRST = Position(1, 4)
CURSOR: Any = None
NOW_MS = 50_500


@dataclass
class Opened:
    began_ms: int
    first_position: Position | None = None


def ledger(
    opened: dict[TxnId, Opened] | None,
    stored: Position | None = FIRST,
    acknowledges: TxnId | None = None,
) -> Any:
    acked = PendingAck({1: BitMap([0, 1])}, {(1, 2): (1, 2)})
    pending = SimpleNamespace(transactions={} if acknowledges is None else {acknowledges: acked})
    return SimpleNamespace(
        transactions=None if opened is None else SimpleNamespace(open=opened, pending=lambda cursor: pending),
        next_stored=lambda after: stored,
        read_limit=lambda: READ,
        now_ms=lambda: NOW_MS,
    )


def words(ledger: Any) -> list[str]:
    return [each.text for each in open_transactions(ledger, CURSOR)]


def test_the_transaction_with_the_first_message_is_named_with_its_age() -> None:
    opened = {
        TxnId(0, 16): Opened(1_000),
        TxnId(0, 18): Opened(2_000, Position(1, 9)),
        TxnId(0, 0): Opened(8_000, Position(1, 4)),
    }
    found = blocking(ledger(opened))
    assert found is not None
    assert found[0] == TxnId(0, 0)
    (why,) = open_transactions(ledger(opened), CURSOR)
    assert (
        why.text == "waits for transaction (0,0), open for 42 s: nothing from its message 1:4 on may be read"
    )
    assert (why.code, why.since_ms) == ("transaction_open", 8_000)
    assert why.data == {"transaction": "(0,0)", "firstMessage": "1:4"}
    opened[TxnId(0, 0)].began_ms = 0
    assert words(ledger(opened)) == [
        "waits for transaction (0,0): nothing from its message 1:4 on may be read"
    ]


def test_the_first_message_of_a_ledger_has_nothing_before_it() -> None:
    opened = {TxnId(0, 1): Opened(49_000, Position(2, 0))}
    (text,) = words(ledger(opened, stored=Position(2, 0)))
    assert text.startswith("waits for transaction (0,1), open for 1 s: nothing from its message 2:0 on")
    assert blocked_s(ledger(opened, stored=Position(2, 0))) == 1.5


def test_nothing_waits_while_no_transaction_has_messages() -> None:
    with_messages = {TxnId(0, 1): Opened(1, Position(1, 4))}
    assert words(ledger(with_messages))
    assert words(ledger(with_messages, stored=None)) == []
    assert words(ledger({TxnId(0, 1): Opened(1)})) == []
    assert words(ledger({})) == words(ledger(None)) == []
    assert blocked_s(ledger(None)) == blocked_s(ledger({})) == 0


def test_the_ones_that_acknowledge_are_named() -> None:
    opened = {TxnId(0, 1): Opened(48_000)}
    (why,) = open_transactions(ledger(opened, stored=None, acknowledges=TxnId(0, 1)), CURSOR)
    assert why.text == "waits for transaction (0,1), open for 2 s, in which messages are acknowledged"
    assert why.data == {"transaction": "(0,1)", "acknowledgedEntries": 3}
    (ended,) = words(ledger({}, stored=None, acknowledges=TxnId(0, 1)))
    assert ended == "waits for transaction (0,1), in which messages are acknowledged"
