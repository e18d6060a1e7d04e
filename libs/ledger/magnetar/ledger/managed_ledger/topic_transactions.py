"""The transactions of a loaded topic: messages, acknowledgements in all subscriptions, and their ends.

All of it is in the topic's cursor ledger, so that one record settles the messages and the acknowledgements of
a transaction at once. Runs in transactions carry the transaction's id; no entry is parsed. When the topic is
loaded, records give what was settled, and the runs after `scan_from` what is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from magnetar.common.errors import InvalidTxnStatus, MagnetarError, StorageError, TransactionNotAllowed
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.appender import Appender, Publish
from magnetar.ledger.managed_ledger.bitmaps import last_hole
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from magnetar.ledger.managed_ledger.topic_cursors import TopicCursors
from magnetar.ledger.managed_ledger.transaction_records import (
    outcome_change,
    pending_ack_changes,
    progress_entries,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.transaction_state import (
    NO_LIMIT,
    OpenTransaction,
    TransactionState,
)
from pyroaring import BitMap

log = get_logger(__name__)

Done = Callable[[MagnetarError | None], object]
"""Called once, with None or with the reason why the request failed."""

Ended = Callable[[TxnId, Action, Sequence[tuple[Cursor, PendingAck]]], object]
"""Called after an end has taken effect, with what the transaction acknowledged in each cursor: it is in their
state after a commit, and free again after an abort.
"""

_SAVE_S: Final = 5.0
"""Time from a change until the position to scan from is written, seconds."""
_RETRY_S: Final = 1.0
_OUTCOMES_MIN: Final = 1_000
"""Outcomes in memory below which none is forgotten; later at twice as many as the last time left."""

SCANNED_BYTES_MAX: Final = 64 << 20
"""Bytes of entries after the position to scan from at which that is written anew."""


def ignore_end(txn: TxnId, action: Action, acks: Sequence[tuple[Cursor, PendingAck]]) -> None:
    """Does nothing about the end of a transaction."""


class TransactionalTopic(Protocol):
    """The managed ledger as its transactions see it."""

    @property
    def name(self) -> str: ...
    @property
    def appender(self) -> Appender: ...
    @property
    def cursors(self) -> TopicCursors: ...
    def now_ms(self) -> int: ...
    def record(self, changes: Sequence[pb.Change], cursor: Cursor | None) -> None: ...
    def flush(self, done: Callable[[StorageError | None], None]) -> None: ...
    def flush_soon(self) -> None: ...
    def limit(self, position: Position | None) -> None: ...
    def ended(self, txn: TxnId, action: Action, acks: Sequence[tuple[Cursor, PendingAck]]) -> None: ...
    def last_before(self, position: Position) -> Position | None:
        """Returns the last position of the ledger before the one of `position`; None if it is the first."""
        ...


class TransactionsRecord:
    """The persisted part of the state; implements `cursor_ledger.DerivedRecord`.

    `durable_mark` is the position to scan from that is on disk: trimming never passes it.
    """

    __slots__ = ("_changed", "_state", "_topic", "_unwritten", "due", "durable_mark", "scanned_bytes")

    def __init__(
        self,
        topic: TransactionalTopic,
        state: TransactionState,
        unwritten: Callable[[], Mapping[TxnId, Action]],
    ) -> None:
        """`unwritten` returns the outcomes that were handed over and are not confirmed."""
        self._topic = topic
        self._state = state
        self._unwritten = unwritten
        self._changed: set[int] = set()
        self.due = False
        self.durable_mark = state.scan_from
        self.scanned_bytes = 0
        """Bytes of entries that a load would scan, without those before this load."""

    def aborted_in(self, ledger_ids: Sequence[int]) -> None:
        """Notes ledgers with entries that were aborted since the last record."""
        self._changed.update(ledger_ids)

    def settled_to(self) -> Position:
        """Returns the position up to which everything is settled."""
        return min(self._topic.appender.last_confirmed, self._state.limit)

    def take(self) -> tuple[list[bytes], Position]:
        """Returns (entries of a change, the position that is durable with them) and clears `due`."""
        self.due = False
        self.scanned_bytes = 0
        scan_from = max(self.settled_to(), self.durable_mark)
        aborted = self._state.aborted
        changed = {ledger_id: aborted[ledger_id] for ledger_id in self._changed if ledger_id in aborted}
        self._changed = set()
        return progress_entries(scan_from, changed), scan_from

    def take_for_snapshot(self, snapshot_id: int) -> tuple[list[bytes], Position]:
        """Returns the same for a snapshot of the whole cursor ledger."""
        self.due = False
        self.scanned_bytes = 0
        self._changed = set()
        self._state.forget_outcomes()
        scan_from = max(self.settled_to(), self.durable_mark)
        complete_to = self._topic.appender.last_confirmed
        entries = snapshot_entries(self._state, scan_from, complete_to, self._unwritten(), snapshot_id)
        return entries, scan_from


@dataclass(slots=True)
class _End:
    action: Action
    low_watermark: int
    waiting: list[Done] = field(default_factory=list)
    recorded: bool = False
    """Whether the outcome was handed over to the cursor ledger: it is written, now or later."""


class TopicTransactions:
    """Transactions of one topic; created with the first one, or at load."""

    __slots__ = ("_ends", "_error", "_forget_at", "_ready", "_save_timer", "_state", "_topic", "record")

    def __init__(self, topic: TransactionalTopic, state: TransactionState | None) -> None:
        """`state`: what was found at load; None for a topic that never had transactions."""
        self._topic = topic
        self._ready = state is not None
        self._state = TransactionState(topic.appender.last_confirmed) if state is None else state
        self._state.ended.clear()
        self._ends: dict[TxnId, _End] = {}
        self._error: StorageError | None = None
        self._forget_at = _OUTCOMES_MIN
        self._save_timer: asyncio.TimerHandle | None = None
        self.record = TransactionsRecord(topic, self._state, self._unwritten)
        self._show_limit()

    # What is known

    @property
    def open(self) -> Mapping[TxnId, OpenTransaction]:
        """Transactions that have not ended here."""
        return self._state.open

    @property
    def aborted(self) -> Mapping[int, BitMap]:
        """Entries of aborted transactions by ledger."""
        return self._state.aborted

    @property
    def low_watermarks(self) -> Mapping[int, int]:
        """By coordinator: no transaction at or below it is open there."""
        return self._state.low_watermarks

    @property
    def ended(self) -> Mapping[Action, int]:
        """Number of transactions that ended here since the load."""
        return self._state.ended

    def outcome(self, txn: TxnId) -> Action | None:
        """Returns how a transaction ended here; None while it is open, or where that is forgotten."""
        return self._state.outcomes.get(txn)

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool:
        """Returns whether an entry belongs to an aborted transaction."""
        return self._state.is_aborted(ledger_id, entry_id)

    def last_readable(self) -> Position:
        """Returns the last entry that may be delivered; its entry id is -1 if there is none."""
        position = self.record.settled_to()
        at: Position | None = position
        while at is not None:
            position = at
            entry_id = last_hole(self._state.aborted.get(at.ledger_id, _NO_ENTRIES), at.entry_id)
            if entry_id >= 0:
                return Position(at.ledger_id, entry_id)
            at = self._topic.last_before(at)
        return Position(position.ledger_id, -1)

    # Messages

    def append(self, run: Run, context: object) -> None:
        """Appends a run as `ManagedLedger.append`; one with a transaction makes that open here.

        Raises TransactionNotAllowed if the transaction ended, or is about to.
        """
        txn = run.txn
        if txn is None:
            self._topic.appender.append(run, context)
            return
        self._check_open(txn)
        opened = self._state.begin(txn, self._topic.now_ms())
        run.flags |= RUN_TXN
        try:
            if self._ready:
                self._topic.appender.append(run, context)
            else:
                # Without a record that there are transactions, runs would not be scanned at the next load.
                self._topic.appender.append_held(run, context)
        except BaseException:
            self._state.forget_unused(txn)
            raise
        opened.runs_in_flight += 1

    def _check_open(self, txn: TxnId) -> None:
        over = txn.least <= self._state.low_watermarks.get(txn.most, -1)
        if over or txn in self._ends or txn in self._state.outcomes:
            raise TransactionNotAllowed(f"transaction {txn} has ended in {self._topic.name}")

    def introduce(self) -> None:
        """Writes the record that the topic has transactions; the first runs in one wait for it."""
        if self._error is None:
            self.record.due = True
            self._topic.flush(self._introduced)

    def _introduced(self, error: StorageError | None) -> None:
        if self._error is not None:
            return
        if error is None:
            self._ready = True
            self._topic.appender.release()
            return
        self._topic.appender.block(error)
        asyncio.get_running_loop().call_later(_RETRY_S, self.introduce)

    def confirmed(self, publishes: Sequence[Publish]) -> None:
        """Takes note of durable runs; to be called before anything may read them."""
        decided: list[TxnId] = []
        record = self.record
        for run, _ in publishes:
            record.scanned_bytes += run.byte_length
            if run.txn is not None:
                self._state.stored(run.txn, run)
                self._decided(run.txn, decided)
        self._show_limit()
        for txn in decided:
            self._go_on(txn)
        if record.scanned_bytes > SCANNED_BYTES_MAX and record.settled_to() > record.durable_mark:
            self._save()

    def refused(self, publishes: Sequence[Publish]) -> None:
        """Takes note of runs that are certainly not stored."""
        decided: list[TxnId] = []
        for run, _ in publishes:
            if run.txn is not None:
                self._decided(run.txn, decided)
        for txn in decided:
            if txn in self._ends:
                self._go_on(txn)
            else:
                self._state.forget_unused(txn)

    def _decided(self, txn: TxnId, decided: list[TxnId]) -> None:
        opened = self._state.begin(txn, 0)
        opened.runs_in_flight -= 1
        if not opened.runs_in_flight:
            decided.append(txn)

    def _show_limit(self) -> None:
        limit = self._state.limit
        self._topic.limit(None if limit == NO_LIMIT else limit)

    # Acknowledgements

    def pending(self, cursor: Cursor) -> CursorPending | None:
        """Returns what transactions acknowledge in a cursor, until the next change; None for nothing."""
        return self._state.pending.get(cursor.cursor_id)

    def ack(self, txn: TxnId, cursor: Cursor, pending: PendingAck, done: Done) -> None:
        """Acknowledges in a transaction; `done` is called once that is durable, never from inside.

        A repetition succeeds. Raises TransactionConflict, TransactionNotAllowed; then nothing was
        acknowledged. After `done` with an error it stays pending, because it may be durable or not: repeat
        the call, or abort.
        """
        self._check_open(txn)
        if not cursor.durable or not self._topic.cursors.has(cursor):
            raise TransactionNotAllowed(
                f"{cursor.name!r} is no durable subscription of {self._topic.name}: transactions acknowledge "
                "only in these"
            )
        (self.pending(cursor) or CursorPending()).check(txn, pending, cursor)
        self._state.begin(txn, self._topic.now_ms())
        self._state.cursor(cursor.cursor_id).add(txn, pending)
        changes = pending_ack_changes(cursor.cursor_id, cursor.sequence + 1, txn, pending)
        cursor.sequence += len(changes)
        self._topic.record(changes, cursor)
        self._topic.flush(lambda error: _answer([done], error))

    def settle_cursor(self, cursor: Cursor, through: Position) -> None:
        """Drops a cursor's pending acknowledgements at or below a position, to which it was reset."""
        self._state.drop_acks(cursor.cursor_id, through)

    def forget_cursor(self, cursor: Cursor) -> None:
        """Drops all pending acknowledgements of a deleted cursor."""
        self._state.forget_cursor(cursor.cursor_id)

    # Ends

    def end(self, txn: TxnId, action: Action, low_watermark: int, done: Done) -> None:
        """Commits or aborts a transaction in this topic; `done` is called once that is durable and has taken
        effect, never from inside.

        Waits for the transaction's own runs. Idempotent; the other action gets InvalidTxnStatus. The outcome
        of an unknown transaction is recorded as well: it refuses messages that arrive late. `low_watermark`:
        no transaction of the coordinator at or below it is open there, -1 if not known.
        """
        loop = asyncio.get_running_loop()
        if self._error is not None:
            loop.call_soon(done, self._error)
            return
        state = self._state
        known = state.outcomes.get(txn)
        ending = self._ends.get(txn)
        earlier = known if ending is None else ending.action
        if earlier is not None and earlier is not action:
            error = InvalidTxnStatus(f"transaction {txn} ended in {self._topic.name} by {earlier.value}")
            loop.call_soon(done, error)
        elif known is not None or (ending is None and state.is_over(txn)):
            loop.call_soon(done, None)
        elif ending is not None:
            ending.waiting.append(done)
            if ending.recorded:
                self._topic.flush(partial(self._on_recorded, txn))
        else:
            self._ends[txn] = _End(action, low_watermark, [done])
            opened = state.open.get(txn)
            if opened is None or not opened.runs_in_flight:
                self._go_on(txn)
        state.raise_low_watermark(txn.most, low_watermark)

    def _go_on(self, txn: TxnId) -> None:
        """Records an outcome whose transaction has no runs in flight any more."""
        end = self._ends.get(txn)
        if end is None or end.recorded:
            return
        end.recorded = True
        self._topic.record([outcome_change(txn, end.action, end.low_watermark)], None)
        self._topic.flush(partial(self._on_recorded, txn))

    def _on_recorded(self, txn: TxnId, error: StorageError | None) -> None:
        end = self._ends.get(txn)
        if end is None:
            return
        if error is not None:
            waiting, end.waiting = end.waiting, []
            _answer(waiting, error)
            return
        del self._ends[txn]
        self._apply(txn, end.action)
        _answer(end.waiting, None)

    def _apply(self, txn: TxnId, action: Action) -> None:
        opened = self._state.open.get(txn)
        if opened is not None and action is Action.ABORT:
            self.record.aborted_in(list(opened.entries))
        acks: list[tuple[Cursor, PendingAck]] = []
        for cursor_id, pending in self._state.settle(txn, action).items():
            cursor = self._topic.cursors.by_id(cursor_id)
            if cursor is not None:
                acks.append((cursor, pending))
                if action is Action.COMMIT:
                    pending.apply_to(cursor)
        if len(self._state.outcomes) > self._forget_at:
            self._state.forget_outcomes()
            self._forget_at = _OUTCOMES_MIN + 2 * len(self._state.outcomes)
        self._show_limit()
        self._save_soon()
        try:
            self._topic.ended(txn, action, acks)
        except Exception:
            log.exception("a topic failed to take the end of a transaction", topic=self._topic.name)

    def _unwritten(self) -> Mapping[TxnId, Action]:
        return {txn: end.action for txn, end in self._ends.items() if end.recorded}

    # Upkeep

    def holds_back(self, slowest: Position | None) -> Position:
        """Returns the position that trimming must not pass, given the slowest cursor's."""
        mark = self.record.durable_mark
        if (slowest is None or slowest > mark) and mark < self.record.settled_to():
            self._save_soon()
        return mark if slowest is None else min(slowest, mark)

    def trimmed(self, first_ledger_id: int) -> None:
        """Drops what is about ledgers before the first one that is left."""
        self._state.trimmed(first_ledger_id)

    def _save_soon(self) -> None:
        if self._save_timer is None and self._error is None:
            self._save_timer = asyncio.get_running_loop().call_later(_SAVE_S, self._on_save_timer)

    def _on_save_timer(self) -> None:
        self._save_timer = None
        self._save()

    def _save(self) -> None:
        self.record.due = True
        self._topic.flush_soon()

    def leave(self) -> None:
        """Has the topic's last flush write how far everything is settled, so that the next load is short."""
        if self.record.settled_to() > self.record.durable_mark:
            self.record.due = True

    def fail(self, error: StorageError) -> None:
        """Fails every end that waits: nothing more will be written. Idempotent."""
        self._error = error
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        for end in self._ends.values():
            waiting, end.waiting = end.waiting, []
            _answer(waiting, error)


_NO_ENTRIES: Final = BitMap()


def _answer(waiting: Sequence[Done], error: MagnetarError | None) -> None:
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("a callback of a transaction failed")
