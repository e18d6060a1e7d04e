"""Entries of aborted transactions: acknowledged when a subscription comes to them, and never delivered.

They take no permits, and are no backlog once they were passed. The same holds each time that they are read:
by a redelivery, after a seek, or for a cursor whose acknowledgements were lost.
"""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.bitmaps import first_hole
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions


def settle(run: Run, transactions: TopicTransactions | None, cursor: Cursor) -> None:
    """Acknowledges the entries of a run that is in one transaction, if that was aborted."""
    if transactions is not None and transactions.is_aborted(run.ledger_id, run.first_entry_id):
        cursor.ack_range(run.ledger_id, run.first_entry_id, run.last_entry_id)


def pass_aborted(transactions: TopicTransactions, cursor: Cursor, start: Position) -> Position | None:
    """Acknowledges the aborted entries from `start` on; returns the last one, None if `start` is no such
    entry.
    """
    aborted = transactions.aborted.get(start.ledger_id)
    if aborted is None or start.entry_id not in aborted:
        return None
    last = first_hole(aborted, start.entry_id) - 1
    cursor.ack_range(start.ledger_id, start.entry_id, last)
    return Position(start.ledger_id, last)


def settle_next(ledger: ManagedLedger, cursor: Cursor) -> None:
    """Acknowledges the aborted entries right after the mark-delete position, which nothing else may pass."""
    transactions = ledger.transactions
    if transactions is None:
        return
    while (start := ledger.next_position(cursor.mark_delete)) is not None:
        if pass_aborted(transactions, cursor, start) is None:
            return
