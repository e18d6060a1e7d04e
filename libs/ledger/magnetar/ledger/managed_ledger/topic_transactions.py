"""The transactions of a loaded topic: runs on their way, ends, pending acknowledgements, the limit of reads.

Everything durable is in the topic's cursor ledger. One record ends a transaction here: its messages, and its
acknowledgements in all cursors. The first run of a topic's first transaction waits until the cursor ledger
says that the topic has transactions, so that a load knows that it must look for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from magnetar.common.errors import InvalidTxnStatus, MagnetarError, StorageError, TransactionNotAllowed
from magnetar.common.naming.position import LATEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.bitmaps import last_hole
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from magnetar.ledger.managed_ledger.transaction_record import SCANNED_BYTES_MAX, TransactionRecord
from magnetar.ledger.managed_ledger.transaction_records import outcome_change, pending_ack_changes
from magnetar.ledger.managed_ledger.transaction_state import NO_LIMIT, OpenTransaction, TransactionState
from pyroaring import BitMap

log = get_logger(__name__)

SAVE_AFTER_S: Final = 5.0
"""Seconds from the end of a transaction until the position to scan from is written, if it can advance."""

Done = Callable[[MagnetarError | None], None]

Acks = Sequence[tuple[Cursor, PendingAck]]

Ended = Callable[[TxnId, Action, Acks], None]
"""Called with a transaction that has ended, and its acknowledgements by cursor. After a commit they are in
the cursors' state, after an abort they are given back.
"""


def ignore_end(txn: TxnId, action: Action, acks: Acks) -> None:
    """Does nothing about the end of a transaction."""


class TransactionalTopic(Protocol):
    """A managed ledger as its transactions see it."""

    @property
    def name(self) -> str: ...

    @property
    def last_confirmed(self) -> Position:
        """The last durable entry."""
        ...

    def now_ms(self) -> int:
        """Returns the wall clock's time, ms since 1970 UTC."""
        ...

    def append(self, run: Run, context: object) -> None:
        """Appends a run; raises as `ManagedLedger.append`."""
        ...

    def append_held(self, run: Run, context: object) -> None:
        """Accepts a run that waits, and all later ones behind it, until `release`."""
        ...

    def release(self) -> None:
        """Appends the runs that wait."""
        ...

    def block(self, error: StorageError) -> None:
        """Refuses the runs that wait, unless `release` comes soon."""
        ...

    def record(self, changes: Sequence[pb.Change]) -> None:
        """Gives changes to the cursor ledger, for its next flush."""
        ...

    def flush(self, done: Callable[[StorageError | None], None]) -> None:
        """Flushes the cursor ledger; `done` is called once that is confirmed, or with the error."""
        ...

    def flush_soon(self) -> None:
        """Flushes the cursor ledger within its flush interval."""
        ...

    def limit(self, position: Position | None) -> None:
        """Sets the last readable position; None: no limit."""
        ...

    def cursor(self, cursor_id: int) -> Cursor | None:
        """Returns a durable cursor; None if it does not exist."""
        ...

    def floor(self, position: Position) -> Position | None:
        """Returns the last existing entry at or before a position; None without one."""
        ...

    def ended(self, txn: TxnId, action: Action, acks: Acks) -> None:
        """Reports the end of a transaction to the topic."""
        ...


@dataclass(slots=True)
class _End:
    """An end that is not durable yet."""

    action: Action
    low_watermark: int
    waiting: list[Done] = field(default_factory=list)


class TopicTransactions:
    """The transactions of one loaded topic, created with the first one. Used on one event loop."""

    __slots__ = (
        "_ends",
        "_error",
        "_forget_at",
        "_known",
        "_runs_in_flight",
        "_saving",
        "_state",
        "_topic",
        "record",
    )

    def __init__(self, topic: TransactionalTopic, state: TransactionState | None) -> None:
        """`state` is what was found on disk; None: the topic has no transactions so far."""
        self._topic = topic
        self._known = state is not None
        self._state = TransactionState(topic.last_confirmed) if state is None else state
        self._state.ended.clear()
        self._state.forget_outcomes()
        self._forget_at = 0
        self._runs_in_flight = 0
        self._ends: dict[TxnId, _End] = {}
        self._error: StorageError | None = None
        self._saving: asyncio.TimerHandle | None = None
        self.record = TransactionRecord(self._state, lambda: topic.last_confirmed)
        self._set_limit()

    def introduce(self) -> None:
        """Has the cursor ledger, which has `record` by now, say that the topic has transactions."""
        if not self._known:
            self.record.due = True
            self._topic.flush(self._introduced)

    # State

    @property
    def open(self) -> Mapping[TxnId, OpenTransaction]:
        """Transactions with messages or acknowledgements here that have not ended here, oldest first."""
        return self._state.open

    @property
    def aborted(self) -> Mapping[int, BitMap]:
        """Entries of aborted transactions, by ledger; read-only."""
        return self._state.aborted

    @property
    def low_watermarks(self) -> Mapping[int, int]:
        """By coordinator, the number up to which all of its transactions are known to be over."""
        return self._state.low_watermarks

    @property
    def ended(self) -> Mapping[Action, int]:
        """Number of transactions that ended here since the load."""
        return self._state.ended

    def outcome(self, txn: TxnId) -> Action | None:
        """Returns how a transaction ended here, while that is remembered."""
        return self._state.outcomes.get(txn)

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool:
        """Returns whether an entry belongs to an aborted transaction."""
        return self._state.is_aborted(ledger_id, entry_id)

    def last_readable(self) -> Position:
        """Returns the last entry that a reader gets: up to the read limit, and not aborted. Its entry id is
        -1 without one.
        """
        topic, aborted = self._topic, self._state.aborted
        limit = self._limit()
        at = topic.last_confirmed if limit is None else min(limit, topic.last_confirmed)
        while (found := topic.floor(at)) is not None:
            entry_id = last_hole(aborted.get(found.ledger_id, _NONE), found.entry_id)
            if entry_id >= 0:
                return Position(found.ledger_id, entry_id)
            at = Position(found.ledger_id, -1)
        return Position(at.ledger_id, -1)

    # Messages

    def append(self, run: Run, context: object) -> None:
        """Appends a run as `ManagedLedger.append`, also one in a transaction. Raises TransactionNotAllowed if
        that is over here.
        """
        txn = run.txn
        if txn is None:
            self._topic.append(run, context)
            return
        self.accept(txn)
        run.flags |= RUN_TXN
        self._state.open[txn].runs_in_flight += 1
        self._runs_in_flight += 1
        self._set_limit()
        try:
            if self._known:
                self._topic.append(run, context)
            else:
                self._topic.append_held(run, context)
        except BaseException:
            self._decided(txn)
            self._set_limit()
            raise

    def accept(self, txn: TxnId) -> None:
        """Opens a transaction here. Raises TransactionNotAllowed if it is over."""
        self._check_open(txn)
        self._state.begin(txn, self._topic.now_ms())

    def _check_open(self, txn: TxnId) -> None:
        if txn in self._ends or self._state.is_over(txn):
            raise TransactionNotAllowed(
                f"transaction {txn} is over in {self._topic.name}: it takes no more messages or "
                "acknowledgements; begin another one"
            )

    def confirmed(self, publishes: Sequence[tuple[Run, object]]) -> None:
        """Adds durable runs, in order, before anything may read them."""
        record, state = self.record, self._state
        for run, _ in publishes:
            record.scanned_bytes += run.byte_length
            if run.txn is not None:
                state.stored(run.txn, run)
                self._decided(run.txn)
        self._set_limit()
        if record.scanned_bytes > SCANNED_BYTES_MAX:
            self._save()

    def refused(self, publishes: Sequence[tuple[Run, object]]) -> None:
        """Removes runs that are certainly not stored."""
        for run, _ in publishes:
            if run.txn is not None:
                self._decided(run.txn)
        self._set_limit()

    def _decided(self, txn: TxnId) -> None:
        """Counts a run of a transaction that is durable or refused; the last one lets its end go on."""
        self._runs_in_flight -= 1
        opened = self._state.open[txn]
        opened.runs_in_flight -= 1
        if not opened.runs_in_flight:
            if txn in self._ends:
                self._write_outcome(txn)
            else:
                self._state.forget_unused(txn)

    def _limit(self) -> Position | None:
        limit = self._state.limit
        if limit is not NO_LIMIT:
            return limit if limit.entry_id >= 0 else self._topic.floor(limit) or limit
        # Nothing of these runs is durable, so they come after everything that is.
        return self._topic.last_confirmed if self._runs_in_flight else None

    def _set_limit(self) -> None:
        self._topic.limit(self._limit())

    # Ends

    def end(self, txn: TxnId, action: Action, low_watermark: int, done: Done) -> None:
        """Ends a transaction here: its messages, and its acknowledgements in all cursors. Idempotent.

        From here on nothing is added to it; its runs in flight are waited for. `done` is called, never from
        inside, once the outcome is durable and applied, or with an error that may pass; InvalidTxnStatus if
        the other action is recorded. `low_watermark`: every lower or equal number of its coordinator is over;
        -1: not known.
        """
        if self._error is not None:
            _answer_soon(done, self._error)
            return
        state, known = self._state, self._ends.get(txn)
        recorded = state.outcomes.get(txn) if known is None else known.action
        if recorded is not None and recorded is not action:
            error = (
                f"transaction {txn} was told to {recorded.value} in {self._topic.name}, not to {action.value}"
            )
            _answer_soon(done, InvalidTxnStatus(error))
        elif known is not None:
            known.low_watermark = max(known.low_watermark, low_watermark)
            known.waiting.append(done)
        elif recorded is not None or (txn not in state.open and state.is_over(txn)):
            _answer_soon(done, None)
        else:
            self._ends[txn] = _End(action, low_watermark, [done])
            opened = state.open.get(txn)
            if opened is None or not opened.runs_in_flight:
                self._write_outcome(txn)

    def _write_outcome(self, txn: TxnId) -> None:
        end = self._ends[txn]
        self._topic.record([outcome_change(txn, end.action, end.low_watermark)])
        self.record.unwritten[txn] = end.action
        self._topic.flush(partial(self._outcome_written, txn))

    def _outcome_written(self, txn: TxnId, error: StorageError | None) -> None:
        end = self._ends.get(txn)
        if end is None or self._error is not None:
            return
        if error is not None:
            # It is written once there is space; those who wait are told now, and may come again.
            waiting, end.waiting = end.waiting, []
            _answer(waiting, error)
            self._topic.flush(partial(self._outcome_written, txn))
            return
        del self._ends[txn], self.record.unwritten[txn]
        self._settle(txn, end.action, end.low_watermark)
        _answer(end.waiting, None)

    def _settle(self, txn: TxnId, action: Action, low_watermark: int) -> None:
        state, topic = self._state, self._topic
        state.raise_low_watermark(txn.most, low_watermark)
        acks: list[tuple[Cursor, PendingAck]] = []
        for cursor_id, pending in state.settle(txn, action).items():
            cursor = topic.cursor(cursor_id)
            if cursor is not None:
                acks.append((cursor, pending))
                if action is Action.COMMIT:
                    pending.apply_to(cursor)
        self._set_limit()
        if len(state.outcomes) > self._forget_at:
            state.forget_outcomes()
            self._forget_at = 2 * len(state.outcomes) + _FORGOTTEN_AT_ONCE
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_AFTER_S, self._on_timer)
        try:
            topic.ended(txn, action, acks)
        except Exception:
            log.exception("a topic failed to take the end of a transaction", topic=topic.name, txn=str(txn))

    # Acknowledgements

    def ack(self, txn: TxnId, cursor: Cursor, pending: PendingAck, done: Done) -> None:
        """Adds acknowledgements that take effect when the transaction is committed. Takes over `pending`.

        `done` is called, never from inside, once they are durable. After an error they may be durable or not,
        so they stay pending until the transaction ends; a repetition is no conflict. Raises
        TransactionConflict if messages are acknowledged, or pending in another transaction;
        TransactionNotAllowed if the transaction is over, or the cursor is not durable.
        """
        if self._error is not None:
            _answer_soon(done, self._error)
            return
        if not cursor.durable or self._topic.cursor(cursor.cursor_id) is not cursor:
            raise TransactionNotAllowed(
                f"{cursor.name!r} is no durable subscription of {self._topic.name}: it takes no "
                "acknowledgements in transactions"
            )
        self._check_open(txn)
        state = self._state
        (state.pending.get(cursor.cursor_id) or CursorPending()).check(txn, pending, cursor)
        state.begin(txn, self._topic.now_ms())
        state.cursor(cursor.cursor_id).add(txn, pending)
        changes = pending_ack_changes(cursor.cursor_id, cursor.sequence + 1, txn, pending)
        cursor.sequence += len(changes)
        self._topic.record(changes)
        self._topic.flush(done)

    def pending(self, cursor: Cursor) -> CursorPending | None:
        """Returns the pending acknowledgements of a cursor; None without any. Valid until the next change."""
        return self._state.pending.get(cursor.cursor_id) if cursor.durable else None

    def settle_cursor(self, cursor: Cursor, through: Position) -> None:
        """Drops pending acknowledgements at or below a position, which the cursor has passed otherwise."""
        pending = self.pending(cursor)
        if pending is not None:
            before = list(pending.transactions)
            self._state.drop_acks(cursor.cursor_id, through)
            for txn in before:
                self._forget_unused(txn)

    def forget_cursor(self, cursor: Cursor) -> None:
        """Drops the pending acknowledgements of a deleted cursor."""
        pending = self.pending(cursor)
        if pending is not None:
            self._state.forget_cursor(cursor.cursor_id)
            for txn in list(pending.transactions):
                self._forget_unused(txn)

    def _forget_unused(self, txn: TxnId) -> None:
        if txn not in self._ends:
            self._state.forget_unused(txn)

    # Records

    def _introduced(self, error: StorageError | None) -> None:
        """Lets the first runs go once the cursor ledger says that the topic has transactions."""
        if self._error is not None:
            return
        if error is None:
            self._known = True
            self._topic.release()
        else:
            self._topic.block(error)
            self._topic.flush(self._introduced)

    def _on_timer(self) -> None:
        self._saving = None
        self._save()

    def _save(self) -> None:
        if not self.record.due and self.record.can_advance:
            self.record.due = True
            self._topic.flush_soon()

    def leave(self) -> None:
        """Has the topic's last flush write how far everything is settled, so that the next load is short."""
        if self.record.can_advance:
            self.record.due = True

    def holds_back(self, slowest: Position | None) -> Position | None:
        """Returns the position that trimming must not pass, given that of others; None: any."""
        mark = self.record.durable_mark
        if mark < (slowest or LATEST):
            self._save()
        return min(slowest or LATEST, mark)

    def trimmed(self, first_ledger_id: int) -> None:
        """Drops what is about ledgers below this id."""
        self._state.trimmed(first_ledger_id)

    def fail(self, error: StorageError) -> None:
        """Ends everything that waits: nothing more will be confirmed. Idempotent."""
        self._error = error
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        ends, self._ends = self._ends, {}
        for end in ends.values():
            _answer(end.waiting, error)


_NONE: Final = BitMap()
_FORGOTTEN_AT_ONCE: Final = 1_000


def _answer(waiting: Sequence[Done], error: MagnetarError | None) -> None:
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("a callback of a transaction's end failed")


def _answer_soon(done: Done, error: MagnetarError | None) -> None:
    asyncio.get_running_loop().call_soon(done, error)
