"""What flushes of the cursor ledger write about the topic's transactions, and how far that reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.ack_state import ENTRY_IDS_MAX
from magnetar.ledger.managed_ledger.transaction_records import progress_entries, snapshot_entries
from magnetar.ledger.managed_ledger.transaction_state import NO_LIMIT, TransactionState
from pyroaring import BitMap

SCANNED_BYTES_MAX: Final = 64 << 20
"""Bytes of entries after which the position to scan from is written again."""


class TransactionRecord:
    """The stored transactions of a loaded topic; implements `cursor_ledger.DerivedRecord`.

    A change moves the position from which a load scans, with the aborted entries that it passes. It never
    passes an entry of an open transaction. `durable_mark` is that position as it is on disk: trimming never
    passes it. `due` means that the next flush includes a change.
    """

    __slots__ = ("_last_confirmed", "_state", "due", "durable_mark", "scanned_bytes", "unwritten")

    def __init__(self, state: TransactionState, last_confirmed: Callable[[], Position]) -> None:
        self._state = state
        self._last_confirmed = last_confirmed
        self.due = False
        self.durable_mark = state.scan_from
        self.scanned_bytes = 0
        """Bytes of entries that a load would scan, about."""
        self.unwritten: dict[TxnId, Action] = {}
        """Outcomes that were given to the cursor ledger and are not confirmed: the state lacks them."""

    @property
    def next_mark(self) -> Position:
        """The position before the first entry of an open transaction, or the last confirmed one."""
        limit = self._state.limit
        return self._last_confirmed() if limit is NO_LIMIT else limit

    @property
    def can_advance(self) -> bool:
        """Whether a change would move the position."""
        return self.next_mark > self._state.scan_from

    def take(self) -> tuple[list[bytes], Position]:
        """Returns (entries of a change, the position that is durable with them) and clears `due`."""
        state = self._state
        before, mark = state.scan_from, self._advance()
        return progress_entries(mark, aborted_between(state, before, mark)), mark

    def take_for_snapshot(self, snapshot_id: int) -> tuple[list[bytes], Position]:
        """Returns the same for a snapshot of the whole cursor ledger."""
        mark = self._advance()
        complete_to = self._last_confirmed()
        return snapshot_entries(self._state, mark, complete_to, self.unwritten, snapshot_id), mark

    def _advance(self) -> Position:
        state = self._state
        state.scan_from = mark = max(state.scan_from, self.next_mark)
        self.due = False
        self.scanned_bytes = 0
        return mark


def aborted_between(state: TransactionState, after: Position, through: Position) -> dict[int, BitMap]:
    """Returns the aborted entries in (after, through], by ledger."""
    found: dict[int, BitMap] = {}
    for ledger_id, entry_ids in state.aborted.items():
        if after.ledger_id <= ledger_id <= through.ledger_id:
            part = entry_ids.copy()
            if ledger_id == after.ledger_id:
                part.remove_range(0, after.entry_id + 1)
            if ledger_id == through.ledger_id:
                part.remove_range(through.entry_id + 1, ENTRY_IDS_MAX)
            if part:
                found[ledger_id] = part
    return found
