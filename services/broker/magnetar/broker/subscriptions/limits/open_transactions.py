"""The open transaction that holds a topic's readers back, for statistics."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.transaction_state import OpenTransaction


def blocking(opened: Mapping[TxnId, OpenTransaction]) -> tuple[TxnId, OpenTransaction] | None:
    """Returns the open transaction with the first message in the topic; None without one."""
    found: tuple[TxnId, OpenTransaction] | None = None
    first: Position | None = None
    for txn, each in opened.items():
        at = each.first_position
        if at is not None and (first is None or at < first):
            found, first = (txn, each), at
    return found


def waits_for(ledger: ManagedLedger, after: Position, now_ms: int) -> str | None:
    """Describes the transaction behind which nothing after a position can be read; None for none.

    `now_ms` is the wall clock, ms since 1970 UTC.
    """
    if ledger.transactions is None or ledger.next_position(after) is not None:
        return None
    found = blocking(ledger.transactions.open)
    if found is None:
        return None
    txn, opened = found
    age_s = max(0, now_ms - opened.began_ms) // 1000
    return f"transaction {txn}, open for {age_s} s" if opened.began_ms else f"transaction {txn}"
