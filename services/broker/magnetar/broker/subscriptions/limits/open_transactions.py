"""The open transaction that holds a topic's readers back, for statistics."""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.transaction_state import OpenTransaction


def blocking(ledger: ManagedLedger) -> tuple[TxnId, OpenTransaction] | None:
    """Returns the open transaction whose first message is the first entry that may not be read; None without
    one. Transactions are in the order in which they began here, so it is found early.
    """
    if ledger.transactions is None:
        return None
    first = ledger.next_stored(ledger.read_limit())
    if first is None:
        return None
    opened = ledger.transactions.open.items()
    return next(((txn, each) for txn, each in opened if each.first_position == first), None)


def blocker(ledger: ManagedLedger) -> str | None:
    """Describes the open transaction behind which nothing may be read; None without one."""
    found = blocking(ledger)
    return None if found is None else _described(ledger, *found)


def blocked_s(ledger: ManagedLedger) -> float:
    """Returns the age in seconds of the open transaction that readers wait for; 0 without one, or when its
    begin is not known.
    """
    found = blocking(ledger)
    return 0.0 if found is None else _age_ms(ledger, found[1]) / 1000


def waits_for(ledger: ManagedLedger, cursor: Cursor, after: Position) -> str | None:
    """Describes the transaction that keeps a subscription from getting more; None for none.

    Nothing after its read position `after` can be read; what it has read is acknowledged, or acknowledged in
    that transaction.
    """
    transactions = ledger.transactions
    if transactions is None or ledger.next_position(after) is not None:
        return None
    found = blocking(ledger)
    if found is not None:
        return _described(ledger, *found)
    pending = transactions.pending(cursor)
    txn = None if pending is None else next(iter(pending.transactions), None)
    if txn is None or txn not in transactions.open:
        return None
    return f"{_described(ledger, txn, transactions.open[txn])}, in which messages are acknowledged"


def _described(ledger: ManagedLedger, txn: TxnId, opened: OpenTransaction) -> str:
    age_s = _age_ms(ledger, opened) // 1000
    return f"transaction {txn}, open for {age_s} s" if opened.began_ms else f"transaction {txn}"


def _age_ms(ledger: ManagedLedger, opened: OpenTransaction) -> int:
    return max(0, ledger.now_ms() - opened.began_ms) if opened.began_ms else 0
