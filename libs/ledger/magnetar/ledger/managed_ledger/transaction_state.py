"""What a topic knows of transactions: open and aborted ones, outcomes, the limit of reads. Pure state.

The limit is the position before the first entry of an open transaction. Aborted entries are one roaring
bitmap per ledger. Outcomes are kept while their coordinator may still have the transaction: they refuse what
arrives late, and answer an end that is repeated.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from magnetar.ledger.managed_ledger.transaction_outcomes import Outcomes
from pyroaring import BitMap

NO_LIMIT: Final = LATEST

_ENDED_BLOCKING_MIN: Final = 1_000
"""Ended transactions behind an open one that are kept at least before they are sorted out."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction that has not ended in this topic."""

    began_ms: int
    """When the topic first heard of it, ms since 1970 UTC; 0: not known."""
    runs_in_flight: int = 0
    """Its accepted runs that are neither confirmed nor refused."""
    _ranges: array[int] | None = None
    # Its durable entries in order: ledger id, first, last; and so on. Most transactions have few here.

    @property
    def first_position(self) -> Position | None:
        """Its first durable entry; None while it has none."""
        return None if self._ranges is None else Position(self._ranges[0], self._ranges[1])

    @property
    def entries(self) -> dict[int, BitMap]:
        """Its durable entries by ledger; a copy."""
        found: dict[int, BitMap] = {}
        ranges = iter(self._ranges or ())
        for ledger_id, first, last in zip(ranges, ranges, ranges, strict=True):
            found.setdefault(ledger_id, BitMap()).add_range(first, last + 1)
        return found

    def add(self, run: Run) -> None:
        """Adds a durable run, which follows all earlier ones."""
        ledger_id, first, last = run.ledger_id, run.first_entry_id, run.last_entry_id
        ranges = self._ranges
        if ranges is None:
            self._ranges = array("Q", (ledger_id, first, last))
        elif ranges[-3] == ledger_id and ranges[-1] + 1 == first:
            ranges[-1] = last
        else:
            ranges.extend((ledger_id, first, last))


class TransactionState:
    """Transactions of one topic."""

    __slots__ = (
        "_aborted",
        "_blocking",
        "_open",
        "_outcomes",
        "_pending",
        "complete_to",
        "ended",
        "limit",
        "low_watermarks",
        "scan_from",
    )

    def __init__(self, scan_from: Position = EARLIEST) -> None:
        self._open: dict[TxnId, OpenTransaction] = {}
        self._blocking: deque[TxnId] = deque()
        # Open transactions with entries in the order of their first positions, among others that have ended.
        self._aborted: dict[int, BitMap] = {}
        self._outcomes = Outcomes()
        self._pending: dict[int, CursorPending] = {}
        self.low_watermarks: dict[int, int] = {}
        """By coordinator: no transaction at or below it is open there."""
        self.scan_from = scan_from
        """Everything in transactions up to here is settled; entries after it are scanned at load."""
        self.complete_to = EARLIEST
        """Every transaction with entries up to here is over, or is in `open`: outcomes may be forgotten."""
        self.limit = NO_LIMIT
        """The last position that may be read."""
        self.ended: Counter[Action] = Counter()
        """Transactions that ended since the load."""

    @property
    def open(self) -> Mapping[TxnId, OpenTransaction]:
        return self._open

    @property
    def aborted(self) -> Mapping[int, BitMap]:
        return self._aborted

    @property
    def outcomes(self) -> Outcomes:
        return self._outcomes

    @property
    def pending(self) -> Mapping[int, CursorPending]:
        """Pending acknowledgements by cursor id."""
        return self._pending

    # Entries

    def is_over(self, txn: TxnId) -> bool:
        """Whether nothing may be added to the transaction here: it ended, also where that is forgotten."""
        if txn in self._open:
            return False
        return txn in self._outcomes or txn.least <= self.low_watermarks.get(txn.most, -1)

    def begin(self, txn: TxnId, now_ms: int) -> OpenTransaction:
        """Returns the open transaction, new or known."""
        known = self._open.get(txn)
        if known is None:
            known = self._open[txn] = OpenTransaction(now_ms)
        return known

    def stored(self, txn: TxnId, run: Run) -> None:
        """Adds a durable run of an open transaction, before anything may read it."""
        opened = self.begin(txn, run.publish_time_ms)
        is_first = opened.first_position is None
        opened.add(run)
        if is_first:
            self._blocking.append(txn)
            self._find_limit()

    def found(self, txn: TxnId, run: Run) -> None:
        """Adds a run found while the topic is loaded, where records were applied before."""
        outcome = self._outcomes.get(txn)
        if outcome is Action.ABORT:
            ids = self._aborted.setdefault(run.ledger_id, BitMap())
            ids.add_range(run.first_entry_id, run.first_entry_id + len(run.entries))
        elif outcome is None and (
            txn in self._open or Position(run.ledger_id, run.first_entry_id) > self.complete_to
        ):
            self.stored(txn, run)

    def forget_unused(self, txn: TxnId) -> None:
        """Removes an open transaction that has nothing here: all of its runs were refused."""
        opened = self._open.get(txn)
        if opened is None or opened.runs_in_flight or opened.first_position is not None:
            return
        if not any(txn in cursor.transactions for cursor in self._pending.values()):
            del self._open[txn]

    # Acknowledgements

    def cursor(self, cursor_id: int) -> CursorPending:
        """Returns the pending acknowledgements of a cursor, created if necessary."""
        found = self._pending.get(cursor_id)
        if found is None:
            found = self._pending[cursor_id] = CursorPending()
        return found

    def drop_acks(self, cursor_id: int, through: Position) -> None:
        """Drops a cursor's pending acknowledgements at or below a position, to which it moved."""
        pending = self._pending.get(cursor_id)
        if pending is not None:
            pending.drop_through(through)
            if not pending.transactions:
                del self._pending[cursor_id]

    def forget_cursor(self, cursor_id: int) -> None:
        """Drops all pending acknowledgements of a deleted cursor."""
        self._pending.pop(cursor_id, None)

    # Ends

    def settle(self, txn: TxnId, action: Action) -> dict[int, PendingAck]:
        """Ends a transaction; returns its acknowledgements by cursor id, to apply after a commit."""
        self._outcomes.add(txn, action)
        self.ended[action] += 1
        acks = self.take_acks(txn)
        opened = self._open.pop(txn, None)
        if opened is not None:
            if action is Action.ABORT:
                for ledger_id, entry_ids in opened.entries.items():
                    self._aborted.setdefault(ledger_id, BitMap()).update(entry_ids)
            self._find_limit()
        return acks

    def note_outcome(self, txn: TxnId, action: Action) -> None:
        """Adds an outcome from a snapshot; see `unapplied`."""
        self._outcomes.add(txn, action)
        self._open.pop(txn, None)

    def unapplied(self) -> list[tuple[Action, dict[int, PendingAck]]]:
        """Removes and returns acknowledgements of transactions whose outcome is known, after a snapshot."""
        with_acks = {txn for cursor in self._pending.values() for txn in cursor.transactions}
        ended = [(txn, outcome) for txn in with_acks if (outcome := self._outcomes.get(txn)) is not None]
        return [(outcome, self.take_acks(txn)) for txn, outcome in ended]

    def take_acks(self, txn: TxnId) -> dict[int, PendingAck]:
        """Removes and returns a transaction's acknowledgements by cursor id."""
        acks = {}
        for cursor_id, pending in list(self._pending.items()):
            removed = pending.remove(txn)
            if removed is not None:
                acks[cursor_id] = removed
                if not pending.transactions:
                    del self._pending[cursor_id]
        return acks

    def raise_low_watermark(self, coordinator: int, low_watermark: int) -> None:
        """Notes that no transaction of a coordinator at or below a number is open there."""
        if low_watermark > self.low_watermarks.get(coordinator, -1):
            self.low_watermarks[coordinator] = low_watermark

    def forget_outcomes(self) -> None:
        """Drops the outcomes at or below low watermarks; `scan_from` and `aborted` have what they said."""
        for coordinator, low_watermark in self.low_watermarks.items():
            if low_watermark >= 0:
                self._outcomes.forget(coordinator, low_watermark)

    def _find_limit(self) -> None:
        blocking = self._blocking
        if len(blocking) > _ENDED_BLOCKING_MIN + 2 * len(self._open):
            blocking = self._blocking = deque(txn for txn in blocking if txn in self._open)
        while blocking and blocking[0] not in self._open:
            blocking.popleft()
        first = self._open[blocking[0]].first_position if blocking else None
        self.limit = NO_LIMIT if first is None else Position(first.ledger_id, first.entry_id - 1)

    # Reading

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool:
        entry_ids = self._aborted.get(ledger_id)
        return entry_ids is not None and entry_id in entry_ids

    def add_aborted(self, ledger_id: int, entry_ids: BitMap) -> None:
        """Adds entries that a record says are aborted."""
        self._aborted.setdefault(ledger_id, BitMap()).update(entry_ids)

    def trimmed(self, first_ledger_id: int) -> None:
        """Drops what is about ledgers before the first one that is left."""
        for ledger_id in [known for known in self._aborted if known < first_ledger_id]:
            del self._aborted[ledger_id]
