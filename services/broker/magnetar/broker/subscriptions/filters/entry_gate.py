"""The interface of entry gates, which hold entries of a subscription back from delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap


class EntryGate(Protocol):
    """Holds entries back from delivery; added with `EntrySource.add_gate`.

    Each run that was read passes the gates in the order in which they were added; each gate sees only what
    the earlier ones let pass. The same entries pass again when they are redelivered, when they were dropped
    for memory and read again, or after a later gate raised an error. So `hold` must give the same answer, and
    may have effects only if repeating them is harmless.
    """

    def hold(self, run: Run) -> Sequence[Run]:
        """Holds back some entries of a run; returns the parts that may be delivered now, in order.

        Runs of markers must pass: they never reach a consumer.
        """
        ...

    def kept(self, ledger_id: int) -> BitMap | None:
        """Returns entries of a ledger that need not be read, because `hold` would keep them; None: unknown.

        The caller does not change the bitmap.
        """
        ...

    def clear(self) -> None:
        """Clears the state: everything is read again, from the mark-delete position or a seek."""
        ...
