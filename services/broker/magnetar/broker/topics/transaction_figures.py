"""The transactions of a topic, for statistics and metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

from magnetar.broker.subscriptions.limits.open_transactions import blocking
from magnetar.common.naming.txn_id import Action
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


class TransactionFigures(NamedTuple):
    """Transactions of one topic since it was loaded."""

    open: int = 0
    """Transactions with messages or acknowledgements here that have not ended here."""
    committed: int = 0
    aborted: int = 0


NO_TRANSACTIONS: Final = TransactionFigures()
"""The figures of a topic that has never had any."""


def figures_of(ledger: ManagedLedger) -> TransactionFigures:
    """Returns the figures of a loaded topic."""
    transactions = ledger.transactions
    if transactions is None:
        return NO_TRANSACTIONS
    ended = transactions.ended
    return TransactionFigures(len(transactions.open), ended[Action.COMMIT], ended[Action.ABORT])


def blocked_s(ledger: ManagedLedger, now_ms: int) -> float:
    """Returns the age in seconds of the open transaction that readers wait for; 0 without one, or when its
    begin is not known. `now_ms` is the wall clock, ms since 1970 UTC.
    """
    found = None if ledger.transactions is None else blocking(ledger)
    if found is None or not found[1].began_ms:
        return 0.0
    return max(0, now_ms - found[1].began_ms) / 1000
