"""A loaded topic's compaction: its view, its hold on ledgers, its runs.

`ManagedLedger.compaction` creates it on first use. The interface for the broker:

- before the first `ManagedLedger.retain` of a load, and when policies change: `hold(threshold in force)`;
- a reader with `read_compacted` at position p: while `has_after(p)`, `read` of the view from p + 1, else the
  topic's own entries after `max(p, horizon)`. The switch depends on the position only, so it needs no state
  and survives another owner and a view that changes in the middle;
- GetLastMessageId: the topic's last dispatchable entry if there is one after `horizon`, else `view_end`;
- `run` when a threshold is passed or an operator wants it, `remove` to unsubscribe `__compaction`.

The view in memory changes only in a step of the topic's maintenance, after the transaction that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from magnetar.common.errors import (
    CompactionRunning,
    LedgerClosed,
    LedgerError,
    LogFailed,
    MetadataError,
    NoSuchLedger,
    OwnershipLost,
    StorageError,
    VersionMismatch,
)
from magnetar.common.metadata.store import Delete, Op, Put
from magnetar.common.metadata.values import COMPACTED, encode
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.compacted.figures import CompactionProgress, CompactionResult, ViewEnd, ViewFigures
from magnetar.ledger.compacted.pace import RunPace
from magnetar.ledger.compacted.rebuild import rebuild_start
from magnetar.ledger.compacted.settings import CompactionSettings
from magnetar.ledger.compacted.view import View, ViewRead
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.appender import Step
from magnetar.ledger.managed_ledger.compaction_run import CompactionRun, finish_run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext, ReadResult
from magnetar.ledger.managed_ledger.intents import delete_ledger_intent, finish_quietly
from magnetar.ledger.managed_ledger.page_ledger import PageLedger
from magnetar.ledger.managed_ledger.storage_reads import TailReads
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey
from magnetar.ledger.managed_ledger.view_record import encode_view

log = get_logger(__name__)

T = TypeVar("T")

_NO_FIGURES: Final = ViewFigures()


class CompactedTopic(Protocol):
    """The parts of a managed ledger that its compaction uses."""

    @property
    def name(self) -> str:
        """Full name of the topic."""
        ...

    @property
    def creation_id(self) -> int: ...

    def tail(self) -> TailReads:
        """Reads of the topic's own entries past the entry cache, for one call."""
        ...

    def first_position(self) -> Position:
        """The position just before the first entry that the topic still has."""
        ...

    def read_limit(self) -> Position:
        """The last position that may be dispatched."""
        ...

    @property
    def is_aborted(self) -> Callable[[int, int], bool] | None:
        """Returns whether an entry belongs to an aborted transaction; None: there are no transactions."""
        ...

    def context(self) -> ManagedLedgerContext:
        """Returns the context with the topic's replication of new ledgers."""
        ...

    def check_serving(self) -> None:
        """Raises an error unless the topic is served."""
        ...

    def kick(self) -> None:
        """Wakes maintenance."""
        ...

    def trim(self) -> None:
        """Trims what nothing holds any more."""
        ...


@dataclass(slots=True)
class _Change:
    """A new state of the view in metadata; `view` None removes it."""

    view: View | None
    ledgers: Sequence[PageLedger]
    done: asyncio.Future[None]


class TopicCompaction:
    """Compaction of one loaded topic. Everything but the coroutines is a plain call without I/O."""

    __slots__ = (
        "_change",
        "_doubt",
        "_head",
        "_held",
        "_idle",
        "_reads",
        "_rebuilt_after",
        "_running",
        "_topic",
        "_view",
    )

    def __init__(self, topic: CompactedTopic, head: TopicHeadKey, view: View | None) -> None:
        self._topic = topic
        self._head = head
        self._view = view
        self._held = view is not None
        self._running = False
        self._rebuilt_after: Position | None = None
        self._change: _Change | None = None
        self._doubt = False
        self._reads: dict[int, int] = {}
        self._idle: asyncio.Future[None] | None = None

    # Hold

    def hold(self, wanted: bool) -> None:
        """Sets whether trimming stops at the horizon (a compaction threshold is in force).

        Without a view and with a hold nothing is trimmed. The hold is not stored: set it after each load,
        before `ManagedLedger.retain`. Until then a topic with a view is held. Releasing it trims at once.
        """
        if self._held != wanted:
            self._held = wanted
            if not wanted:
                self._topic.trim()

    @property
    def held(self) -> bool:
        """Whether trimming stops at the horizon."""
        return self._held

    def holds_back(self, slowest: Position | None) -> Position | None:
        """Returns the position that trimming must not pass, given that of everything else. A run holds the
        entries that it still has to read, with or without a threshold.
        """
        if not self._held and not self._running:
            return slowest
        held = self.horizon or EARLIEST
        if self._rebuilt_after is not None:
            held = min(held, self._rebuilt_after)
        return min(LATEST if slowest is None else slowest, held)

    # View

    @property
    def horizon(self) -> Position | None:
        """The position up to which the view replaces the topic's entries; None without a view."""
        return None if self._view is None else self._view.horizon

    @property
    def view_end(self) -> ViewEnd | None:
        """The last message of the view; None when there is no view, or it is empty."""
        return None if self._view is None else self._view.end

    def has_after(self, position: Position) -> bool:
        """Returns whether the view has an entry after `position`. Neither reads nor waits."""
        end = self.view_end
        return end is not None and end.position > position

    @property
    def figures(self) -> ViewFigures:
        """Figures of the view; zeros and ledger id -1 without one."""
        return _NO_FIGURES if self._view is None else self._view.figures

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        """Reads live entries of the view from the first one at or after `start`, like `ManagedLedger.read`.

        Runs have the original positions, publish times, indexes, message counts and flags; a run contains
        consecutive entries only. Returns at least one entry if one exists, however large; `next` is where to
        go on, and after the last entry of the view the position after the horizon. Batches of which some
        messages are compacted out have them marked so. Entries are not cached. A damaged page of which there
        is only one copy is skipped: its ledger and page are logged and counted.

        Raises NoSuchLedger if a segment is lost (never an empty result), EntryUnreadable, EntryUnknown,
        LogFailed, DataCorruption.
        """

        async def read(view: View) -> ViewRead:
            return await view.read(start, entries_max, bytes_max)

        view = self._view
        if view is None:
            return ReadResult([], start, [])
        found = await self._reading(view, read)
        return ReadResult(found.runs, found.next, found.unreadable)

    async def first_at_time(self, publish_time_ms: int) -> Position | None:
        """Returns the first live entry of the view whose broker publish time is at or after this; None if all
        are older. Raises as `read`.
        """

        async def search(view: View) -> Position | None:
            return await view.first_at_time(publish_time_ms)

        view = self._view
        return None if view is None else await self._reading(view, search)

    async def _reading(self, view: View, read: Callable[[View], Awaitable[T]]) -> T:
        """Reads a view, whose ledgers stay meanwhile; goes on with the next view if it was replaced."""
        while True:
            reads, number = self._reads, id(view)
            reads[number] = reads.get(number, 0) + 1
            try:
                return await read(view)
            except LedgerError as error:
                if self._view is None or self._view is view:
                    if isinstance(error, NoSuchLedger):
                        self._doubt = True
                        self._topic.kick()
                    raise
                following = self._view
            finally:
                reads[number] -= 1
                if not reads[number]:
                    del reads[number]
                    idle, self._idle = self._idle, None
                    if idle is not None and not idle.done():
                        idle.set_result(None)
            view = following

    # Runs

    @property
    def running(self) -> bool:
        """Whether a run or a removal is in progress."""
        return self._running

    async def run(
        self, limit: Position, settings: CompactionSettings, progress: CompactionProgress | None = None
    ) -> CompactionResult:
        """Compacts the topic's entries after the horizon up to `limit`, which becomes the horizon.

        Pass `ManagedLedger.read_limit()`. Works in slices of about a millisecond on the event loop. While it
        runs nothing after the horizon is trimmed. On failure, and if the caller is cancelled, the view stays
        as it was (after several parts, as the last complete part left it), and new ledgers are deleted.

        Raises CompactionRunning, OwnershipLost, MetadataError, errors of `read`, LogFull, LogFailed,
        NotEnoughBookies; DataCorruption if an earlier segment is damaged.
        """
        self._begin()
        try:
            return await self._run(limit, settings, progress or CompactionProgress())
        finally:
            self._end()

    async def _run(
        self, limit: Position, settings: CompactionSettings, progress: CompactionProgress
    ) -> CompactionResult:
        topic = self._topic
        ctx = topic.context()
        began = ctx.clock.monotonic()
        limit = min(limit, topic.read_limit())
        if topic.is_aborted is not None:
            settings = replace(settings, is_aborted=topic.is_aborted)
        before = view = self._view or _no_view(ctx, topic.name, settings)
        run = CompactionRun(
            ctx,
            topic.name,
            topic.tail,
            topic.check_serving,
            self._name,
            settings,
            progress,
            RunPace(ctx.clock, settings.limits.bytes_per_second),
        )
        try:
            view = await self._rebuilt(run, view, limit, settings)
            while True:
                after = await run.part(view, limit)
                if after is view or after.horizon >= limit:
                    view = after
                    break
                view = after
        finally:
            await finish_run(run)
        return CompactionResult(
            view.horizon,
            run.removed_messages,
            view.figures,
            progress.entries_read,
            progress.bytes_read,
            progress.bytes_written,
            ctx.clock.monotonic() - began,
            view is not before,
        )

    async def _rebuilt(
        self, run: CompactionRun, view: View, limit: Position, settings: CompactionSettings
    ) -> View:
        """Rebuilds damaged segments if the topic still has their entries; returns the view in force."""
        start = rebuild_start(view, self._topic.first_position(), settings.retain_null_key)
        if start is None or limit < view.horizon:
            return view
        self._rebuilt_after = start.horizon
        try:
            return await run.rebuild(view, start, limit)
        finally:
            self._rebuilt_after = None

    async def remove(self) -> None:
        """Removes the view with its ledgers, and the hold; durable on return. Idempotent.

        Raises CompactionRunning, OwnershipLost, MetadataError.
        """
        self._begin()
        try:
            if self._view is not None:
                await self._name(None, ())
            self._held = False
        finally:
            self._end()

    def _begin(self) -> None:
        self._topic.check_serving()
        if self._running:
            raise CompactionRunning(f"{self._topic.name} is being compacted; try again later")
        self._running = True

    def _end(self) -> None:
        self._running = False
        self._topic.trim()

    # Maintenance

    def next_step(self) -> Step | None:
        """Returns the next metadata operation of the topic's maintenance, if one is due."""
        if self._change is not None:
            return self._write
        return self._verify_owner if self._doubt else None

    def fail(self, error: StorageError) -> None:
        """Ends the wait for a change without a result: the topic is lost or closed."""
        change, self._change = self._change, None
        if change is not None and not change.done.done():
            change.done.set_exception(error)

    async def _name(self, view: View | None, ledgers: Sequence[PageLedger]) -> None:
        """Makes metadata name a view, and then uses it; deletes the ledgers that it replaces."""
        self._topic.check_serving()
        before = self._view
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        change = self._change = _Change(view, ledgers, done)
        self._topic.kick()
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            if self._change is change:
                self._change = None  # not begun, and never will be
            elif not done.done():
                # The next run must know which view is in force.
                await asyncio.wait([done])
            raise
        if before is not None:
            ctx = self._topic.context()
            await self._unread(before)
            for ref in _replaced(before, view):
                await finish_quietly(ctx, ref)

    async def _write(self) -> None:
        """Writes a change; a failure is reported to the waiting caller, and not retried here."""
        change, self._change = self._change, None
        assert change is not None, "the step is due"
        try:
            await self._commit(change)
        except (MetadataError, StorageError) as error:
            if not change.done.done():
                change.done.set_exception(error)
            if isinstance(error, OwnershipLost):
                raise
        except BaseException:
            if not change.done.done():
                change.done.set_exception(LedgerClosed(f"{self._topic.name} closed while its view was named"))
            raise
        else:
            if not change.done.done():
                change.done.set_result(None)

    async def _commit(self, change: _Change) -> None:
        ctx = self._topic.context()
        await self._head.sync()
        head = self._head.decode()
        key = ctx.keys.compacted_view(self._topic.creation_id)
        ops: list[Op] = [ledger.adoption() for ledger in change.ledgers]
        if change.view is None:
            head.format.incompatible_features &= ~COMPACTED
            ops.append(Delete(key))
        else:
            head.format.incompatible_features |= COMPACTED
            ops.append(Put(key, encode(encode_view(change.view, ctx.clock.wall_ms()))))
        if self._view is not None:
            ops += [delete_ledger_intent(ctx, ref) for ref in _replaced(self._view, change.view)]
        try:
            await self._head.commit(head, ops)
        except VersionMismatch as error:
            raise LogFailed(
                f"a ledger of {self._topic.name}'s compaction was cleaned up before it was used: {error}"
            ) from error
        self._view = change.view

    async def _verify_owner(self) -> None:
        """Checks that metadata has the view that is in memory, after one of its ledgers was missing."""
        await self._head.sync()
        self._doubt = False
        if error := await self._head.unknown():
            raise error

    async def _unread(self, view: View) -> None:
        """Waits until no read of a former view is in progress."""
        while self._reads.get(id(view)):
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)


def _no_view(ctx: ManagedLedgerContext, topic: str, settings: CompactionSettings) -> View:
    return View(topic, EARLIEST, (), None, settings.hash_key, ctx.ledgers.open, ctx.pages)


def _replaced(before: View, after: View | None) -> list[LedgerRef]:
    kept = set() if after is None else set(after.refs)
    return [ref for ref in before.refs if ref not in kept]
