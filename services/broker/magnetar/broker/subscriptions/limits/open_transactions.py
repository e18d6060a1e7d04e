"""The open transaction that holds a topic's readers back, for statistics."""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.transaction_state import OpenTransaction


def blocking(ledger: ManagedLedger) -> tuple[TxnId, OpenTransaction] | None:
    """Returns the open transaction whose first message is the first one after the limit of reads; None
    without one.

    Transactions are in the order in which they began here, so it is found early.
    """
    if ledger.transactions is None:
        return None
    limit = ledger.read_limit()
    for txn, opened in ledger.transactions.open.items():
        first = opened.first_position
        if first is not None and (first.ledger_id, first.entry_id - 1) == limit:
            return txn, opened
    return None


def blocked_s(ledger: ManagedLedger) -> float:
    """Returns the age in seconds of the open transaction that readers wait for; 0 without one, or when its
    begin is not known.
    """
    found = blocking(ledger)
    if ledger.transactions is None or found is None:
        return 0.0
    return ledger.transactions.age_ms(found[1]) / 1000


def waits_for(ledger: ManagedLedger, after: Position) -> str | None:
    """Describes the transaction behind which nothing after a position can be read; None for none."""
    found = blocking(ledger)
    if ledger.transactions is None or found is None or ledger.next_position(after) is not None:
        return None
    txn, opened = found
    age_s = ledger.transactions.age_ms(opened) // 1000
    return f"transaction {txn}, open for {age_s} s" if opened.began_ms else f"transaction {txn}"
