"""Which transaction a subscription waits for, in words."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from magnetar.broker.subscriptions.limits.open_transactions import blocked_s, blocking, waits_for
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId

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
    following: Position | None = None,
    stored: Position | None = FIRST,
    acknowledges: TxnId | None = None,
) -> Any:
    pending = SimpleNamespace(transactions={} if acknowledges is None else {acknowledges: None})
    return SimpleNamespace(
        transactions=None if opened is None else SimpleNamespace(open=opened, pending=lambda cursor: pending),
        next_position=lambda after: following,
        next_stored=lambda after: stored,
        read_limit=lambda: READ,
        now_ms=lambda: NOW_MS,
    )


def test_the_transaction_with_the_first_message_is_named_with_its_age() -> None:
    opened = {
        TxnId(0, 16): Opened(1_000),
        TxnId(0, 18): Opened(2_000, Position(1, 9)),
        TxnId(0, 0): Opened(8_000, Position(1, 4)),
    }
    found = blocking(ledger(opened))
    assert found is not None
    assert found[0] == TxnId(0, 0)
    assert waits_for(ledger(opened), CURSOR, READ) == "transaction (0,0), open for 42 s"
    opened[TxnId(0, 0)].began_ms = 0
    assert waits_for(ledger(opened), CURSOR, READ) == "transaction (0,0)"


def test_the_first_message_of_a_ledger_has_nothing_before_it() -> None:
    opened = {TxnId(0, 1): Opened(49_000, Position(2, 0))}
    assert waits_for(ledger(opened, stored=Position(2, 0)), CURSOR, READ) == "transaction (0,1), open for 1 s"
    assert blocked_s(ledger(opened, stored=Position(2, 0))) == 1.5


def test_nothing_waits_while_something_can_be_read_or_no_transaction_has_messages() -> None:
    with_messages = {TxnId(0, 1): Opened(1, Position(1, 4))}
    assert waits_for(ledger(with_messages), CURSOR, READ) is not None
    assert waits_for(ledger(with_messages, Position(1, 3)), CURSOR, READ) is None
    assert waits_for(ledger(with_messages, stored=None), CURSOR, READ) is None
    assert waits_for(ledger({TxnId(0, 1): Opened(1)}), CURSOR, READ) is None
    assert waits_for(ledger({}), CURSOR, READ) is None
    assert waits_for(ledger(None), CURSOR, READ) is None
    assert blocked_s(ledger(None)) == blocked_s(ledger({})) == 0


def test_without_a_message_behind_the_limit_the_one_that_acknowledges_is_named() -> None:
    opened = {TxnId(0, 1): Opened(48_000)}
    found = waits_for(ledger(opened, stored=None, acknowledges=TxnId(0, 1)), CURSOR, READ)
    assert found == "transaction (0,1), open for 2 s, in which messages are acknowledged"
    following = ledger(opened, Position(1, 3), stored=None, acknowledges=TxnId(0, 1))
    assert waits_for(following, CURSOR, READ) is None
