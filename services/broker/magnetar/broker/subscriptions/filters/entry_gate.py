"""The interface of entry gates, which keep entries of a subscription from going out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap


class EntryGate(Protocol):
    """Keeps entries from going out; added with `EntrySource.add_gate`.

    Gates are asked about each run of entries that was read, one gate after the other in the order in which
    they were added; each sees only what those before it let pass. They are asked about the same entries again
    when these are redelivered, or when memory was short and they were read anew, or after a later gate raised
    an error. So `hold` must give the same answer, and may have effects only if repeating them is harmless.
    """

    def hold(self, run: Run) -> Sequence[Run]:
        """Keep some entries of a run; returns the parts that may go out now, in order.

        Runs of markers have to pass: they never reach a consumer.
        """
        ...

    def kept(self, ledger_id: int) -> BitMap | None:
        """Return entries of a ledger that need not be read, because `hold` would keep them; None: unknown.

        The caller does not change the bitmap.
        """
        ...

    def clear(self) -> None:
        """Forget what is kept: everything is read anew, from the mark-delete position or a seek."""
        ...
