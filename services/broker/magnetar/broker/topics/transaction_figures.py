"""The transactions of a topic, for statistics and metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

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
