"""Ledgers that an open transaction holds back from offload: their rows are not known until it ends."""

from __future__ import annotations

from magnetar.broker.subscriptions.limits.open_transactions import blocker
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


def is_held(ledger: ManagedLedger, span: LedgerSpan) -> bool:
    """Returns whether a closed ledger has entries that may not be read yet. Once false, it stays so."""
    return span.entries > 0 and span.last_position > ledger.read_limit()


def why_held(ledger: ManagedLedger) -> str:
    """Returns the reason why ledgers of a topic are held back now, for operators."""
    return f"waits for {blocker(ledger) or 'a transaction'}"
