"""The cursor ledger of a topic: the changes of all dirty durable cursors in one append.

Due changes of the deduplication state and of the delayed index are included. One flush is in flight at a
time; changes made meanwhile form the next one. A cursor ledger begins with a complete snapshot. It is
replaced when it has grown far beyond one, when its writer failed, and at the first durable change after a
takeover (which closed it): the new ledger's snapshot is confirmed, then the head names it, then the old one
is deleted through an intent. Until the head names it the new ledger has such an intent too, so a crash leaves
no orphan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.common.errors import (
    Backpressure,
    LedgerFenced,
    LogFull,
    MagnetarError,
    NotEnoughBookies,
    OwnershipLost,
    StorageError,
)
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import LedgerRef, LedgerWriter, Run
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_records import (
    ack_changes,
    change_entries,
    create_change,
    delete_change,
    encode_entry,
    properties_change,
    reset_change,
    snapshot_entries,
)
from magnetar.ledger.managed_ledger.deduplication import DeduplicationRecord
from magnetar.ledger.managed_ledger.delayed_index import DelayedChunk, DelayedIndex
from magnetar.ledger.managed_ledger.intents import finish_quietly
from magnetar.ledger.managed_ledger.new_record_ledger import NewRecordLedger
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

log = get_logger(__name__)

Done = Callable[[StorageError | None], None]


class DerivedRecord(Protocol):
    """State of the topic that flushes and snapshots include, such as that of deduplication."""

    due: bool
    durable_mark: Position

    def take(self) -> tuple[list[bytes], Position]:
        """Returns (entries of a change, the position that is durable with them)."""
        ...

    def take_for_snapshot(self, snapshot_id: int) -> tuple[list[bytes], Position]:
        """Returns the same for a snapshot of the whole cursor ledger."""
        ...


_Mark = tuple[Cursor, Position, int] | tuple[DerivedRecord, Position]
"""A mark included in a flush, with the number of entries that the cursor has acknowledged."""

_RETRY_S = 0.05
_SNAPSHOT_ID = 1


@dataclass(slots=True)
class _Flush:
    """Records that were appended, or wait for space (`last_entry_id` -1)."""

    run: Run
    waiting: list[Done]
    marks: list[_Mark]
    proofs: list[Done]
    chunks: list[DelayedChunk]
    """Chunks whose records are the flush's last entries."""
    last_entry_id: int = -1


class CursorLedger:
    """Persists the durable cursors of one topic. `kick` asks the owner to call `roll` if `roll_wanted`."""

    __slots__ = (
        "_behind",
        "_byte_length",
        "_cursors",
        "_dirty",
        "_entries",
        "_fenced",
        "_flush",
        "_flush_wanted",
        "_head",
        "_on_flushed",
        "_proofs",
        "_records",
        "_rolling",
        "_snapshot_bytes",
        "_timer",
        "_touched",
        "_waiting",
        "ctx",
        "deduplication",
        "delays",
        "kick",
        "next_cursor_id",
        "roll_wanted",
        "topic",
        "transactions",
        "writer",
    )

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        topic: str,
        head: TopicHeadKey,
        *,
        next_cursor_id: int,
        cursors: Callable[[], Iterable[Cursor]],
        kick: Callable[[], None],
        on_flushed: Callable[[], None],
        delayed: DelayedIndex | None = None,
    ) -> None:
        self.ctx = ctx
        self.topic = topic
        self.kick = kick
        self.next_cursor_id = next_cursor_id
        self.writer: LedgerWriter | None = None
        self.roll_wanted = False
        self.deduplication: DeduplicationRecord | None = None
        self.delays: TopicDelays | None = None
        self.transactions: DerivedRecord | None = None
        self._head = head
        self._cursors = cursors
        self._on_flushed = on_flushed
        self._entries = self._byte_length = self._snapshot_bytes = 0
        self._dirty: list[Cursor] = []
        self._records: list[pb.Change] = []
        self._touched: list[Cursor] = []
        self._waiting: list[Done] = []
        self._flush: _Flush | None = None
        self._proofs: list[Done] = []
        self._fenced: LedgerFenced | None = None
        self._rolling = self._flush_wanted = False
        self._behind = False  # true while changes are neither on disk nor in a delta: only a snapshot helps
        self._timer: asyncio.TimerHandle | None = None
        if delayed is not None:
            self.keep_delays(delayed)

    # Changes

    def created(self, cursor: Cursor) -> None:
        """Records a new cursor, which exists once the next flush is confirmed; `cursors` contains it
        already.
        """
        cursor.cursor_id = self.next_cursor_id
        self.next_cursor_id += 1
        cursor.sequence = 1
        cursor.on_dirty = self.dirtied
        self.record([create_change(cursor.snapshot(cursor.whole()))], cursor)

    def deleted(self, cursor: Cursor) -> None:
        """Records a deletion, durable once the next flush is confirmed; `cursors` no longer contains the
        cursor.
        """
        cursor.on_dirty = None
        cursor.sequence += 1
        self._dirty = [other for other in self._dirty if other is not cursor]
        self.record([delete_change(cursor.cursor_id, cursor.sequence)], cursor)

    def reset(self, cursor: Cursor) -> None:
        """Records that a cursor's state was replaced by its mark-delete position."""
        cursor.sequence += 1
        self.record([reset_change(cursor.cursor_id, cursor.sequence, cursor.mark_delete)], cursor)

    def described(self, cursor: Cursor) -> None:
        """Records new properties of a cursor."""
        cursor.sequence += 1
        self.record([properties_change(cursor.cursor_id, cursor.sequence, cursor.properties)], cursor)

    def dirtied(self, cursor: Cursor) -> None:
        """Records a cursor's first change since the last flush."""
        self._dirty.append(cursor)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Schedules a flush within the flush interval."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.ctx.config.cursor_flush_interval_s, self._on_timer)

    def record(self, changes: Iterable[pb.Change], cursor: Cursor | None) -> None:
        """Adds changes, of a cursor or of the topic's transactions, to the next flush in this order."""
        self._records += changes
        if cursor is not None:
            self._touched.append(cursor)

    def keep_delays(self, index: DelayedIndex) -> TopicDelays:
        """Persists the topic's delayed index in this ledger from now on."""
        self.delays = TopicDelays(self.ctx, self.topic, index, lambda: self.ref, self.flush_soon)
        return self.delays

    @property
    def ref(self) -> LedgerRef | None:
        """The cursor ledger that the head names."""
        return self._head.record_ledger

    @property
    def last_position(self) -> Position | None:
        """The position of that ledger's last record; None before the first one."""
        ref = self.ref
        return None if ref is None else Position(ref.id, self._entries - 1)

    # Flushing

    @property
    def busy(self) -> bool:
        """Whether records wait for confirmation (unflushed acknowledgements do not count)."""
        return bool(self._records or self._flush or self._rolling or self._waiting or self._behind)

    def flush(self, done: Done | None) -> None:
        """Writes all changes; `done` is called once they are confirmed, never from inside this call."""
        if done is not None:
            self._waiting.append(done)
        if self._flush is None and not self._rolling:
            self._start()

    def leave(self) -> None:
        """Makes the last flush before the topic is closed."""
        if self.delays is not None:
            self.delays.leave()
        self._flush_wanted = True  # also when a flush is in flight, which does not have all of it
        self.flush(None)

    def prove(self, done: Done) -> bool:
        """Appends a record, empty if necessary, to prove ownership; `done` is called with the result, never
        from inside.

        Unlike `flush` it is not retried in another ledger. Returns False while no ledger is open, unless the
        last one was fenced.
        """
        if self._fenced is not None:
            asyncio.get_running_loop().call_soon(done, self._fenced)
            return True
        if self.writer is None or self._behind or self._rolling:
            return False
        self._proofs.append(done)
        if self._flush is None:
            self._start()
        return True

    def fail(self, error: StorageError) -> None:
        """Fails every waiting flush: nothing more will be confirmed."""
        self.stop()
        waiting = self._waiting + self._take_proofs()
        if self._flush is not None:
            waiting += self._flush.waiting
        self._waiting, self._flush, self.writer = [], None, None
        _answer(waiting, error)

    def _take_proofs(self) -> list[Done]:
        """Returns the proofs left unanswered by a ledger that is given up."""
        proofs, self._proofs = self._proofs, []
        if self._flush is not None:
            proofs, self._flush.proofs = self._flush.proofs + proofs, []
        return proofs

    def stop(self) -> None:
        """Stops timed flushes and delayed entries."""
        if self.delays is not None:
            self.delays.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        self._flush_wanted = False
        if not (self._records or self._dirty or self._behind or self._derived_due or self._proofs):
            if self._waiting:
                waiting, self._waiting = self._waiting, []
                asyncio.get_running_loop().call_soon(_answer, waiting, None)
        elif self.writer is None or self._behind:
            self._want_roll()
        else:
            if self._grown():
                self._want_roll()
            self._write()

    @property
    def _derived_due(self) -> bool:
        return bool(self._due_records()) or (self.delays is not None and self.delays.records.due)

    def _due_records(self) -> list[DerivedRecord]:
        derived: tuple[DerivedRecord | None, ...] = (self.deduplication, self.transactions)
        return [each for each in derived if each is not None and each.due]

    def _want_roll(self) -> None:
        self.roll_wanted = True
        self.kick()

    def _on_timer(self) -> None:
        self._timer = None
        self._flush_wanted = True
        self.flush(None)

    def _grown(self) -> bool:
        # Data that a roll would copy counts as snapshot; computed only when it matters.
        grown = self._grown_beside(0, 0)
        return grown and (self.delays is None or self._grown_beside(*self.delays.records.live))

    def _grown_beside(self, kept_entries: int, kept_bytes: int) -> bool:
        config = self.ctx.config
        return self._entries - kept_entries >= config.cursor_ledger_entries_max or self._byte_length > max(
            config.cursor_ledger_bytes_min,
            config.cursor_ledger_growth * (self._snapshot_bytes + kept_bytes),
        )

    def _write(self) -> None:
        changes, self._records = self._records, []
        dirty, self._dirty = self._dirty, []
        marks: list[_Mark] = [_mark(cursor) for cursor in (*self._touched, *dirty)]
        self._touched = []
        for cursor in dirty:
            # A reset removed the changes that made it dirty; nothing is left to write.
            if cursor.dirty:
                records = ack_changes(cursor.cursor_id, cursor.sequence + 1, cursor.take_changes())
                cursor.sequence += len(records)
                changes += records
        waiting, self._waiting = self._waiting, []
        entries = change_entries(changes)
        for record in self._due_records():
            state, mark = record.take()
            entries += state
            marks.append((record, mark))
        chunks: list[DelayedChunk] = []
        if self.delays is not None and self.delays.records.due:
            delayed, chunks = self.delays.records.take()
            entries += delayed
        proofs, self._proofs = self._proofs, []
        if proofs and not entries:
            entries = [encode_entry(pb.Entry(changes=pb.Changes()))]
        run = Run(entries, publish_time_ms=self.ctx.clock.wall_ms())
        self._flush = _Flush(run, waiting, marks, proofs, chunks)
        if run.entries:
            self._append()
        else:
            asyncio.get_running_loop().call_soon(self._flushed, self._flush)

    def _append(self) -> None:
        flush, writer = self._flush, self.writer
        assert flush is not None
        if writer is None or flush.last_entry_id >= 0:
            return
        try:
            flush.last_entry_id = writer.append(flush.run) + len(flush.run.entries) - 1
        except (Backpressure, LogFull) as error:
            # The records remain and are written once there is space; requests waiting on a full disk are
            # refused.
            if isinstance(error, LogFull):
                self._waiting, flush.waiting = flush.waiting + self._waiting, []
                self._tell_waiting(error)
            asyncio.get_running_loop().call_later(_RETRY_S, self._retry, flush)
        except StorageError as error:
            asyncio.get_running_loop().call_soon(self._on_failed, writer, error)
        else:
            self._entries += len(flush.run.entries)
            self._byte_length += flush.run.byte_length

    def _retry(self, flush: _Flush) -> None:
        if self._flush is flush:
            self._append()

    def _on_confirmed(self, writer: LedgerWriter, last_confirmed: int) -> None:
        flush = self._flush
        if writer is self.writer and flush is not None and 0 <= flush.last_entry_id <= last_confirmed:
            self._flushed(flush)

    def _flushed(self, flush: _Flush) -> None:
        if self._flush is not flush:
            return
        self._flush = None
        if flush.chunks and self.delays is not None:
            self.delays.records.written(flush.chunks, flush.last_entry_id)
        _answer(flush.proofs, None)
        self._confirmed(flush.marks, flush.waiting)
        if not self._rolling and (self._waiting or self._records or self._flush_wanted or self._proofs):
            self._start()
            if not self.busy:
                self._on_flushed()  # nothing was left to write, so no confirmation will signal completion

    def _confirmed(self, marks: Sequence[_Mark], waiting: list[Done]) -> None:
        for each in marks:
            if len(each) == 2:
                each[0].durable_mark = each[1]
                continue
            cursor, mark, acked_entries = each
            cursor.durable_acked = acked_entries
            if cursor.durable_mark != mark:
                cursor.advanced_ms = self.ctx.clock.wall_ms()
            cursor.durable_mark = mark
        _answer(waiting, None)
        self._on_flushed()

    def _on_failed(self, writer: LedgerWriter, error: StorageError) -> None:
        """Handles a failed writer: the outcome of flushes in flight is unknown, so a snapshot in a new ledger
        repeats everything.
        """
        if writer is not self.writer:
            return
        log.warning("cursor ledger failed", topic=self.topic, ledger=writer.ref.id, error=str(error))
        self.writer = None
        if isinstance(error, LedgerFenced):
            self._fenced = error
        proofs = self._take_proofs()
        if self._flush is not None:
            self._waiting[:0] = self._flush.waiting
            self._flush = None
            self._behind = True
            self._want_roll()
        _answer(proofs, error)

    # Rolling

    async def roll(self) -> None:
        """Switches to a new ledger that begins with a snapshot.

        Raises OwnershipLost, or a retriable error: then the old ledger, if any, is still the topic's.
        """
        await self._head.sync()
        properties = {"topic": self.topic, "kind": "cursors"}
        new = NewRecordLedger(self.ctx, self._head, properties, self._on_confirmed, self._on_failed)
        try:
            await new.create()
        except NotEnoughBookies as error:
            self._tell_waiting(error)
            raise
        moved: dict[DelayedChunk, int] = {}
        if self.delays is not None:
            try:
                await self.delays.records.copy_to(new, moved)
            except BaseException:
                await new.abandon()
                raise
        self._rolling = True
        cursors = list(self._cursors())
        for cursor in cursors:
            cursor.take_changes()
        marks: list[_Mark] = [_mark(cursor) for cursor in cursors]
        deduplication: list[bytes] = []
        if self.deduplication is not None:
            deduplication, mark = self.deduplication.take_for_snapshot(_SNAPSHOT_ID)
            marks.append((self.deduplication, mark))
        transactions: list[bytes] = []
        if self.transactions is not None:
            transactions, mark = self.transactions.take_for_snapshot(_SNAPSHOT_ID)
            marks.append((self.transactions, mark))
        entries = snapshot_entries(
            [cursor.snapshot(cursor.whole()) for cursor in cursors],
            snapshot_id=_SNAPSHOT_ID,
            next_cursor_id=self.next_cursor_id,
            deduplication=deduplication,
            transactions=transactions,
        )
        chunks: list[DelayedChunk] = []
        if self.delays is not None:
            delayed, chunks = self.delays.records.take_for_snapshot()
            entries += delayed
        waiting, self._waiting = self._waiting, []
        self._records, self._touched, self._dirty = [], [], []
        # The taken changes are in the snapshot only: from here on the old ledger cannot be continued.
        self._behind = True
        self.writer = None
        waiting += self._take_proofs()
        if self._flush is not None:
            waiting += self._flush.waiting
            self._flush = None
        try:
            last_entry_id = await new.append(entries) + len(entries) - 1
            old = await new.adopt()
        except BaseException as error:
            self._waiting[:0] = waiting
            if isinstance(error, LogFull | NotEnoughBookies):
                self._tell_waiting(error)
            if isinstance(error, MagnetarError) and not isinstance(error, OwnershipLost):
                await new.abandon()
            raise
        finally:
            self._rolling = False
        self.writer, self._fenced = new.writer, None
        self.roll_wanted = self._behind = False
        self._entries = len(entries) + len(moved)
        self._byte_length = self._snapshot_bytes = sum(map(len, entries))
        if self.delays is not None:
            self._byte_length += sum(chunk.byte_length for chunk in moved)
            self._snapshot_bytes -= sum(chunk.byte_length for chunk in chunks)
            self.delays.records.moved(moved)
            self.delays.records.written(chunks, last_entry_id)
        self._confirmed(marks, waiting)
        if self._waiting or self._records or self._flush_wanted:
            self._start()
        if old is not None:
            await finish_quietly(self.ctx, old)

    def _tell_waiting(self, error: StorageError) -> None:
        waiting, self._waiting = self._waiting, []
        asyncio.get_running_loop().call_soon(_answer, waiting, error)


def _mark(cursor: Cursor) -> _Mark:
    return cursor, cursor.mark_delete, cursor.acked_entries


def _answer(waiting: Iterable[Done], error: StorageError | None) -> None:
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("a callback of a cursor flush failed")
