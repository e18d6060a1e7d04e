"""A topic's managed ledger: its ledgers as one stream of entries, its cursors, and their maintenance.

This class is the facade that a topic uses; the work is in its parts: `appender` (writes), `cursor_ledger`
(persistent cursors), `topic_offload`, `storage_reads`, `trimming`, `takeover`. One task (`maintenance`)
performs all metadata operations, one step at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from magnetar.common.errors import LedgerClosed, MetadataError, StorageError, TopicTerminated
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import cursor_ledger_pb2 as pb
from magnetar.ledger.managed_ledger import storage_reads, topic_head, trimming
from magnetar.ledger.managed_ledger.appender import Appender, Publish, Step
from magnetar.ledger.managed_ledger.context import (
    ManagedLedgerContext,
    ManagedLedgerListener,
    Persistence,
    ReadResult,
)
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger, Done
from magnetar.ledger.managed_ledger.delayed_index import DelayedIndex
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts, TopicCache
from magnetar.ledger.managed_ledger.kept_ledgers import Kept, holders_of
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.maintenance import maintain
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.takeover import TakenOver
from magnetar.ledger.managed_ledger.topic_compaction import TopicCompaction
from magnetar.ledger.managed_ledger.topic_cursors import TopicCursors
from magnetar.ledger.managed_ledger.topic_deduplication import TopicDeduplication
from magnetar.ledger.managed_ledger.topic_delays import TopicDelays
from magnetar.ledger.managed_ledger.topic_head import EditT, RaisedEpoch
from magnetar.ledger.managed_ledger.topic_offload import TopicOffload
from magnetar.ledger.managed_ledger.topic_transactions import Ended, TopicTransactions, ignore_end
from magnetar.ledger.managed_ledger.transaction_state import TransactionState

log = get_logger(__name__)


class ManagedLedger(TopicOffload):
    """One loaded topic's storage; created by `open_managed_ledger`, used on one event loop.

    `deduplication` holds its deduplication state, `transactions` its transactions; None if there never were
    any. `max_read_position` limits reads to what is before the first open transaction; None: no limit.
    `on_transaction_ended` is called for each transaction that ended here, once it is durable and more may be
    readable; the topic sets it.
    """

    __slots__ = (
        "_appender",
        "_cache",
        "_compaction",
        "_cursor_ledger",
        "_cursors",
        "_doomed",
        "_listener",
        "_maintenance",
        "_transactions",
        "_waiting_for_drain",
        "append",
        "deduplication",
        "max_read_position",
        "on_transaction_ended",
        "properties",
        "retention",
        "terminated",
        "topic_epoch",
    )

    def __init__(
        self, ctx: ManagedLedgerContext, name: str, listener: ManagedLedgerListener, topic: TakenOver
    ) -> None:
        head = topic.head.decode()
        super().__init__(ctx, name, head.creation_id, topic.head)
        self._listener = listener
        self._spans = topic.spans
        self.topic_epoch = head.topic_epoch
        self.properties = dict(head.properties)
        self.max_read_position: Position | None = None
        self.on_transaction_ended: Ended = ignore_end
        self.retention = trimming.NO_RETENTION
        self._cache: TopicCache | None = None
        self._compaction = (
            None if topic.view is None else TopicCompaction(_CompactedTopic(self), topic.head, topic.view)
        )
        self._doomed: list[LedgerSpan] | None = None
        self._maintenance: asyncio.Task[None] | None = None
        self._waiting_for_drain: asyncio.Future[None] | None = None
        kick = self._kick  # one bound method for both: every idle topic pays for it
        self._appender = Appender(
            ctx,
            name,
            topic.head,
            topic.spans,
            creation_id=head.creation_id,
            next_index=topic.next_index,
            last_confirmed=topic.last_position,
            kick=kick,
            on_confirmed=self._on_confirmed,
            on_refused=listener.on_refused,
            on_closed=self.trim,
        )
        self.append: Callable[[Run, object], None] = self._appender.append
        """Accepts a run; the listener gets it with the second argument once it is durable. A plain call that
        never waits and never calls back from inside; sets the run's publish time and first index. While no
        ledger is open the run queues, within a limit. Raises LogFull, LogFailed, Backpressure or
        OwnershipLost at once, and TransactionNotAllowed for a run in a transaction that is over; then the run
        was not accepted. Before the first run in a transaction `use_transactions` has to be called.
        """
        self._cursors = TopicCursors(name, topic.spans, topic.cursors)
        self._cursor_ledger = self._cursors.ledger = CursorLedger(
            ctx,
            name,
            topic.head,
            next_cursor_id=topic.next_cursor_id,
            cursors=self._cursors.durable,
            kick=kick,
            on_flushed=self._on_flushed,
            delayed=topic.delayed,
        )
        self.deduplication = TopicDeduplication(self._cursor_ledger, topic.deduplication)
        self._transactions: TopicTransactions | None = None
        if topic.transactions is not None:
            self._begin_transactions(topic.transactions)
        self.terminated = head.HasField("terminated")
        if self.terminated:
            self.seal()

    # Publishing

    @property
    def next_index(self) -> int:
        """The topic-wide index of the next message to be appended."""
        return self._appender.next_index

    @property
    def confirmed_index(self) -> int:
        """Index of the first unconfirmed message, or of the next one."""
        return self._appender.confirmed_index

    def prepare(self) -> None:
        """Opens a ledger in advance of an expected run."""
        self._appender.prepare()

    def _on_confirmed(self, publishes: list[Publish]) -> None:
        if self._lost is not None:
            return
        if self._cursors.by_name:
            cache = self._cache
            if cache is None:
                cache = self._cache = self._ctx.cache.topic()
            for run, _ in publishes:
                cache.put(run)
        try:
            self._listener.on_confirmed(publishes)
        except Exception:
            log.exception("a topic failed to take confirmations", topic=self.name)
        if self._waiting_for_drain is not None:
            self._check_drained()

    # Reading

    @property
    def last_confirmed(self) -> Position:
        """The last durable entry in topic order; without one its entry id is -1, or it is -1:-1."""
        return self._appender.last_confirmed

    last_position = last_confirmed

    def read_limit(self) -> Position:
        """The last position that may be dispatched or shown."""
        confirmed = self._appender.last_confirmed
        limit = self.max_read_position
        return confirmed if limit is None else min(confirmed, limit)

    def now_ms(self) -> int:
        """Returns the topic's wall clock, ms since 1970 UTC."""
        return self._ctx.clock.wall_ms()

    def first_position(self) -> Position:
        """The position just before the first existing entry."""
        spans = self._spans.spans
        return Position(spans[0].ref.id, -1) if spans else self._appender.last_confirmed

    def next_stored(self, after: Position) -> Position | None:
        """Returns the first existing entry after `after`, also beyond the read limit."""
        return self._spans.next_within(after, self._appender.last_confirmed)

    def next_position(self, after: Position) -> Position | None:
        """Returns the first existing entry after `after`; None if there is none up to the read limit."""
        return self._spans.next_within(after, self.read_limit())

    def read_cached(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        """Returns a cached run that begins exactly at `start`; None on a miss. It shares the entries'
        bytes.
        """
        cache, limit = self._cache, self.max_read_position
        run = None if cache is None else cache.get(start, entries_max, bytes_max)
        if run is not None and limit is not None:
            run = storage_reads.cut(run, limit)
        if run is not None and cache is not None:
            cache.count_cached(run)
        return run

    async def read(
        self, start: Position, entries_max: int, bytes_max: int, *, uncommitted: bool = False
    ) -> ReadResult:
        """Reads entries from the first existing one at or after `start` up to the read limit, across ledgers;
        with `uncommitted` up to the last durable one. Entries of aborted transactions are among them.

        Returns at least one entry if one exists, however large. Raises NoSuchLedger, EntryUnknown, LogFailed;
        EntryUnreadable only if entries have several copies, one of which may recover.
        """
        limit = self._appender.last_confirmed if uncommitted else self.read_limit()
        result = await storage_reads.read(self._reads(), self._spans, start, limit, entries_max, bytes_max)
        if result.runs:
            if self._cache is None:
                self._cache = self._ctx.cache.topic()
            self._cache.count_stored(result.runs)
        return result

    async def find_before_publish_time(self, publish_time_ms: int) -> Position:
        """Returns the position just before the first entry whose broker publish time is at or after this.

        The result never skips entries whose time is unreadable now and may be readable later (one copy may be
        repaired).
        """
        return await storage_reads.find_before_publish_time(
            self._reads(), self._spans, publish_time_ms, self.read_limit()
        )

    def entries_between(self, after: Position, through: Position) -> int:
        """Returns how many entries exist in (after, through]."""
        return max(0, self._spans.ordinal(through) - self._spans.ordinal(after))

    @property
    def spans(self) -> LedgerSpans:
        """The existing entries by ledger; read-only."""
        return self._spans

    @property
    def entries(self) -> int:
        """Number of existing entries."""
        return self._spans.entries

    @property
    def storage_bytes(self) -> int:
        """Bytes of the existing entries, one copy."""
        return self._spans.byte_length

    @property
    def read_counts(self) -> ReadCounts | None:
        """Read counters since the load; None without reads."""
        return None if self._cache is None else self._cache.reads

    @property
    def writes(self) -> Appender:
        """Runs on their way to storage, for figures and explanations only."""
        return self._appender

    # Compaction

    @property
    def compaction(self) -> TopicCompaction:
        """The topic's compacted view, its hold on ledgers, and its runs."""
        if self._compaction is None:
            self._compaction = TopicCompaction(_CompactedTopic(self), self._head, None)
        return self._compaction

    # Transactions

    @property
    def transactions(self) -> TopicTransactions | None:
        """The topic's transactions; None if there never were any."""
        return self._transactions

    def use_transactions(self) -> TopicTransactions:
        """Returns `transactions`, created if necessary for a first one."""
        return self._transactions or self._begin_transactions(None)

    def _begin_transactions(self, state: TransactionState | None) -> TopicTransactions:
        transactions = self._transactions = TopicTransactions(_TransactionalTopic(self), state)
        self._cursor_ledger.transactions = transactions.record
        self._appender.report_to(self._on_confirmed_in_transactions, self._on_refused_in_transactions)
        self.append = transactions.append
        if self._lost is not None:
            transactions.fail(self._lost)
        elif state is None:
            transactions.introduce()
        return transactions

    def _on_confirmed_in_transactions(self, publishes: list[Publish]) -> None:
        if self._transactions is not None and self._lost is None:
            self._transactions.confirmed(publishes)
        self._on_confirmed(publishes)

    def _on_refused_in_transactions(self, publishes: list[Publish], error: StorageError) -> None:
        if self._transactions is not None:
            self._transactions.refused(publishes)
        self._listener.on_refused(publishes, error)

    # Cursors

    @property
    def cursor_records(self) -> Position | None:
        """Position of the durable cursors' last record; None before the first one."""
        return self._cursor_ledger.last_position

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """Durable and non-durable cursors by name."""
        return self._cursors.by_name

    async def create_cursor(
        self, name: str, position: Position, properties: dict[str, str], *, reads_view: bool = False
    ) -> Cursor:
        """Creates a durable cursor at `position`, or returns the existing one; confirmed on return.

        A position outside the topic is moved to its nearest end; with `reads_view` one in the compacted view
        stays. Raises StorageError if it was not written.
        """
        self._check_serving()
        return await self._cursors.create(name, self._clamp(position, reads_view), properties)

    def open_non_durable_cursor(self, name: str, position: Position, *, reads_view: bool = False) -> Cursor:
        """Creates a non-durable cursor (a reader's): it is not stored and does not prevent trimming.

        With `reads_view` trimming does not move it, because the compacted view serves its position.
        """
        self._check_serving()
        cursor = self._cursors.open_non_durable(name, self._clamp(position, reads_view))
        cursor.reads_view = reads_view
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """Removes a non-durable cursor."""
        self._cursors.close(cursor)

    async def delete_cursor(self, name: str) -> None:
        """Deletes a cursor; confirmed on return if durable. Raises SubscriptionNotFound, StorageError."""
        self._check_serving()
        cursor = self._cursors.by_name.get(name)
        await self._cursors.delete(name)
        if self._transactions is not None and cursor is not None:
            self._transactions.forget_cursor(cursor)
        self.trim()

    async def reset_cursor(self, cursor: Cursor, position: Position) -> None:
        """Moves the cursor to `position` and drops its acknowledgements (seek); confirmed on return."""
        self._check_serving()
        target = self._clamp(position, cursor.reads_view)
        if self._transactions is not None:
            self._transactions.settle_cursor(cursor, target)
        await self._cursors.reset(cursor, target)

    async def describe_cursor(self, cursor: Cursor, properties: dict[str, str]) -> None:
        """Replaces a cursor's properties; confirmed on return. Raises as `delete_cursor`."""
        self._check_serving()
        await self._cursors.describe(cursor, properties)

    def flush_cursors(self, done: Done | None = None) -> None:
        """Writes all cursor changes in one append. `done` is called, never from inside, once those made so
        far are confirmed, or with the error.
        """
        if self._lost is not None:
            if done is not None:
                asyncio.get_running_loop().call_soon(done, self._lost)
            return
        self._cursor_ledger.flush(done)

    @property
    def delays(self) -> TopicDelays | None:
        """The topic's delayed entries; None if there never were any."""
        return self._cursor_ledger.delays

    def delayed_entries(self) -> TopicDelays:
        """Returns `delays`, created if necessary for a first delayed entry."""
        return self.delays or self._cursor_ledger.keep_delays(DelayedIndex())

    def prove_ownership(self, done: Done) -> bool:
        """Appends to the cursor ledger, which only its owner can; `done` gets the result. Returns False,
        without calling `done`, while no cursor ledger is open.
        """
        return self._lost is None and self._cursor_ledger.prove(done)

    def pass_in_view(self, cursor: Cursor, position: Position) -> None:
        """Acknowledges cumulatively up to a position of the compacted view that the topic no longer has."""
        horizon = self.compaction.horizon
        if horizon is not None and position <= horizon:
            cursor.pass_missing(position)

    def _clamp(self, position: Position, reads_view: bool = False) -> Position:
        last = self._appender.last_confirmed
        if position >= last:
            return last
        if reads_view and self.compaction.horizon is not None and position < self.compaction.horizon:
            return position
        return self._spans.floor(position) or self.first_position()

    def _on_flushed(self) -> None:
        self.trim()
        self._check_drained()

    def persist_as(self, persistence: Persistence | None) -> int:
        """Sets the replication of new ledgers, or restores the configured one; returns the number of copies
        of an entry.
        """
        ctx = self._appender.ctx = self._cursor_ledger.ctx = self._ctx.persisting_as(persistence)
        return ctx.config.write_quorum

    def retain(self, retention: trimming.Retention) -> None:
        """Sets the retention of acknowledged entries; data beyond it is trimmed at once."""
        if (retention := retention.after(self.retention)) != self.retention:
            self.retention = retention
            self.trim()

    def roll(self) -> None:
        """Closes the open ledger, which can then be trimmed; further entries go to another ledger."""
        self._appender.retire()
        self._kick()

    def trim(self) -> None:
        """Deletes closed ledgers that no durable cursor needs and retention does not keep.

        Runs by itself when a cursor passes a ledger; call it periodically for ledgers that only expire.
        Suspended over restored metadata.
        """
        if self._ctx.restored.holds:
            return
        spans = self._spans.spans
        if spans and spans[0].closed and not self._closing:
            needed, now_ms = self.kept().needed, self._ctx.clock.wall_ms()
            removed = trimming.take_off(self._spans, self._cursors.by_name, needed, self.retention, now_ms)
            if removed:
                if self.delays is not None:
                    self.delays.trimmed(removed[-1].ref.id + 1)
                if self._transactions is not None:
                    self._transactions.trimmed(removed[-1].ref.id + 1)
                self._doomed = [*(self._doomed or ()), *removed]
                self._kick()

    def kept(self) -> Kept:
        """Returns what keeps ledgers from being deleted, as `trim` sees it."""
        holders = holders_of(self._cursors, self.deduplication, self._compaction, self._transactions)
        return Kept(holders, self.retention, self._doomed or (), self._ctx.restored.holds)

    async def _trim(self) -> None:
        doomed = (self._doomed or [])[: trimming.LEDGERS_PER_TRANSACTION_MAX]
        first = self._spans.spans[0].ref.id if self._spans.spans else 0
        next_index, last = self._appender.confirmed_index, self._appender.last_confirmed
        await trimming.take_off_list(
            self._ctx, self._head, self.creation_id, doomed, first, next_index=next_index, last_position=last
        )
        self._doomed = (self._doomed or [])[len(doomed) :] or None
        await trimming.let_go(self._ctx, self.name, doomed)
        self.trim()

    async def raise_topic_epoch(self, at_least: int = 0) -> int:
        """Returns the next topic epoch, or `at_least`, for a new exclusive producer; durable on return."""
        return (await self._edit_head(RaisedEpoch(at_least))).epoch

    def seal(self) -> None:
        """Refuses further publishes; accepted ones are still confirmed."""
        self._appender.refused = TopicTerminated(f"{self.name} was terminated: it takes no more messages")

    async def terminate(self) -> Position:
        """Terminates the topic permanently, with no publish in flight; durable on return. Idempotent."""
        assert self._appender.drained, "sealed, and waited for"
        await self._edit_head(topic_head.with_termination(self.last_confirmed))
        self.terminated = True
        return self.last_confirmed

    async def change_properties(self, change: topic_head.PropertiesChange) -> None:
        """Replaces the topic's properties; durable on return. Raises what `change` raises."""
        if error := (await self._edit_head(topic_head.ChangedProperties(change))).error:
            raise error

    async def _edit_head(self, edit: EditT) -> EditT:
        self._check_serving()
        done = self._head.edit_soon(edit)
        self._kick()
        await done
        return edit

    async def _write_head(self) -> None:
        value = await self._head.write_edits()
        self.topic_epoch = value.topic_epoch
        self.properties = dict(value.properties)

    def _kick(self) -> None:
        """Wakes maintenance after a change."""
        if self._maintenance is None and self._lost is None:
            self._maintenance = asyncio.get_running_loop().create_task(self._maintain())

    def _steps(self) -> list[Step]:
        if self._lost is not None:
            return []
        steps = (
            self._appender.next_step(),
            self._cursor_ledger.roll if self._cursor_ledger.roll_wanted else None,
            self._write_head if self._head.edits_wait else None,
            self._trim if self._doomed else None,
            self._leave if self._leaving else None,
            self._compaction.next_step() if self._compaction is not None else None,
        )
        return [step for step in steps if step is not None]

    async def _maintain(self) -> None:
        try:
            await maintain(self.name, self._appender, self._steps, self.lose)
        finally:
            self._maintenance = None
            self._appender.step_done()
            if self._lost is not None:
                self._end(self._lost)  # a step that was cut short has given back what waited for it
            self._check_drained()

    def lose(self, error: StorageError) -> None:
        """Stops everything and notifies the listener, once: ownership or storage is lost.

        Nothing is confirmed or written from here on.
        """
        if self._lost is not None:
            return
        log.warning("managed ledger lost", topic=self.name, error=str(error))
        self._end(error)
        asyncio.get_running_loop().call_soon(self._listener.on_lost, error)

    def give_up(self) -> list[Publish]:
        """Returns accepted publishes that will never be decided; for the listener of the loss."""
        return self._appender.give_up()

    # Closing

    async def close(self) -> None:
        """Flushes the cursors, waits for publishes in flight, closes the ledgers; idempotent.

        Waits for nothing once ownership is lost. A caller with a deadline cancels it: then the ledgers stay
        open for the next owner to recover.
        """
        self._closing = True
        self._appender.refuse(LedgerClosed(f"{self.name} is closing"))
        try:
            await self._drained()
            self._appender.retire()
            if self._transactions is not None:
                self._transactions.leave()
            if self._lost is None:
                self._cursor_ledger.leave()  # runs beside the ledger's closing, because requests are waiting
            self._kick()
            await self._drained()
            writer, self._cursor_ledger.writer = self._cursor_ledger.writer, None
            if writer is not None and self._lost is None:
                await writer.close()
        except (MetadataError, StorageError) as error:
            log.warning("a ledger was left open", topic=self.name, error=str(error))
        finally:
            if self._maintenance is not None:
                self._maintenance.cancel()
            self._end(self._lost or LedgerClosed(f"{self.name} is closed"))

    def _end(self, error: StorageError) -> None:
        """Stops all writes and fails every request still waiting. Idempotent."""
        self._lost = error
        self._appender.stop(error)
        self._appender.retire()
        if self._transactions is not None:
            self._transactions.fail(error)
        self._cursor_ledger.fail(error)
        self._head.fail_edits(error)
        self._fail_leaving(error)
        if self._compaction is not None:
            self._compaction.fail(error)
        self._drop_cache()
        self._check_drained()

    async def _drained(self) -> None:
        while not self._idle():
            if self._waiting_for_drain is None:
                self._waiting_for_drain = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting_for_drain)  # others may wait as well

    def _idle(self) -> bool:
        if self._lost is not None:
            return True
        return self._appender.drained and self._maintenance is None and not self._cursor_ledger.busy

    def _check_drained(self) -> None:
        waiting = self._waiting_for_drain
        if waiting is not None and self._idle():
            self._waiting_for_drain = None
            waiting.set_result(None)

    def _drop_cache(self) -> None:
        if self._cache is not None:
            self._cache.clear()
            self._cache = None

    def _check_serving(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(*self._lost.args)
        if self._closing:
            raise LedgerClosed(f"{self.name} is closing")


class _CompactedTopic:
    """A managed ledger as its compaction sees it; implements `topic_compaction.CompactedTopic`."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger

    @property
    def name(self) -> str:
        return self._ledger.name

    @property
    def creation_id(self) -> int:
        return self._ledger.creation_id

    def tail(self) -> storage_reads.TailReads:
        return storage_reads.TailReads(self._ledger._reads(), self._ledger._spans)

    def first_position(self) -> Position:
        return self._ledger.first_position()

    def read_limit(self) -> Position:
        return self._ledger.read_limit()

    @property
    def is_aborted(self) -> Callable[[int, int], bool] | None:
        transactions = self._ledger.transactions
        return None if transactions is None else transactions.is_aborted

    def context(self) -> ManagedLedgerContext:
        return self._ledger._appender.ctx

    def check_serving(self) -> None:
        self._ledger._check_serving()

    def kick(self) -> None:
        self._ledger._kick()

    def trim(self) -> None:
        self._ledger.trim()


class _TransactionalTopic:
    """A managed ledger as its transactions see it; implements `topic_transactions.TransactionalTopic`."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger

    @property
    def name(self) -> str:
        return self._ledger.name

    @property
    def appender(self) -> Appender:
        return self._ledger._appender

    @property
    def cursors(self) -> TopicCursors:
        return self._ledger._cursors

    def now_ms(self) -> int:
        return self._ledger.now_ms()

    def record(self, changes: Sequence[pb.Change], cursor: Cursor | None) -> None:
        self._ledger._cursor_ledger.record(changes, cursor)

    def flush(self, done: Done) -> None:
        self._ledger.flush_cursors(done)

    def flush_soon(self) -> None:
        self._ledger._cursor_ledger.flush_soon()

    def limit(self, position: Position | None) -> None:
        self._ledger.max_read_position = position

    def ended(self, txn: TxnId, action: Action, acks: Sequence[tuple[Cursor, PendingAck]]) -> None:
        self._ledger.on_transaction_ended(txn, action, acks)

    def last_before(self, position: Position) -> Position | None:
        return self._ledger.spans.floor(Position(position.ledger_id, -1))
