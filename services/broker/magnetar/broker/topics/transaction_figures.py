"""The transactions of a topic, for statistics and metrics."""

from __future__ import annotations

from typing import Final, NamedTuple


class TransactionFigures(NamedTuple):
    """Transactions of one topic since it was loaded."""

    open: int = 0
    """Transactions with messages or acknowledgements here that have not ended here."""
    committed: int = 0
    aborted: int = 0
    blocked_s: float = 0.0
    """Age in seconds of the open transaction that readers wait for; 0 without one."""


NO_TRANSACTIONS: Final = TransactionFigures()
"""The figures of a topic that has never had any."""
