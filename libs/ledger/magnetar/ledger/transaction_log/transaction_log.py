"""The log of one coordinator: changes of its transactions, durable in the order in which they were made.

A change is applied to the state at once, and its caller is told when it is durable. All changes of one turn
of the event loop are one append. A log ledger begins with a snapshot; it is replaced when it has grown far
beyond one, when its writer failed, and at the first change after a takeover (which closed it). Changes go on
during a replacement: until the head names the new ledger they are written to both.

After a failed append the fate of its changes is unknown until the head names the next ledger, whose snapshot
includes them. If that is refused, the coordinator has another owner: nothing is answered, and the next
owner's replay decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.errors import (
    Backpressure,
    LedgerClosed,
    LogFailed,
    LogFull,
    MagnetarError,
    MetadataError,
    OwnershipLost,
    StorageError,
)
from magnetar.common.naming.txn_id import Action
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import LedgerRef, LedgerWriter, Run
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import finish_quietly
from magnetar.ledger.managed_ledger.new_record_ledger import NewRecordLedger
from magnetar.ledger.transaction_log import log_records as records
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState, Reason, Subscription
from magnetar.ledger.transaction_log.log_head import LogHeadKey
from magnetar.ledger.transaction_log.log_snapshots import snapshot_entries

log = get_logger(__name__)

Done = Callable[[StorageError | None], None]

KIND: Final = "transactions"
"""Kind of the log's ledgers in their properties."""

_RETRY_S: Final = 0.05
_BACKOFF_MAX_S: Final = 5.0
_SNAPSHOT_ID: Final = 1
_SNAPSHOT_BATCH_BYTES: Final = 1024 * 1024
_SETTLED_BYTES: Final = 64 * 1024
"""Bytes of changes below which a replacement stops copying and holds changes back for its last step."""
_COPY_ROUNDS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class LogLimits:
    """Limits of one coordinator's log."""

    entries_max: int = 200_000
    """Entries after which a ledger is replaced."""
    bytes_min: int = 16 * 1024 * 1024
    """Bytes below which a ledger is not replaced, however small its snapshot is."""
    growth: int = 4
    """A ledger is replaced when it is that many times as large as its snapshot."""
    numbers_ahead: int = 1 << 20
    """Numbers that the head allows ahead of use, so that an outage of metadata does not stop transactions."""
    unconfirmed_max: int = 20_000
    """Changes that may wait for confirmation; more are refused."""


@dataclass(slots=True)
class LogFigures:
    """Counters since the takeover."""

    appends: int = 0
    """Appended groups of changes."""
    changes: int = 0
    rolls: int = 0


@dataclass(slots=True)
class _Group:
    """Changes that are confirmed together. `last_entry_id` is -1 while they are not appended."""

    changes: int
    run: Run
    waiting: list[Done]
    ended: list[int] = field(default_factory=list)
    """Transactions that the group ends."""
    last_entry_id: int = -1


class TransactionLog:
    """Created by `take_over_log`; used on one event loop. `on_lost` is called once, when another owner has
    taken over or storage is lost; every waiting caller gets the error before.
    """

    def __init__(
        self,
        ctx: ManagedLedgerContext,
        coordinator_id: int,
        head: LogHeadKey,
        state: CoordinatorState,
        on_lost: Callable[[StorageError], None],
        limits: LogLimits,
    ) -> None:
        self.coordinator_id = coordinator_id
        self.state = state
        self.figures = LogFigures()
        self.obstacle: str | None = None
        """Reason why changes are not confirmed now; None while they are, as far as is known."""
        self._ctx = ctx
        self._head = head
        self._on_lost = on_lost
        self._limits = limits
        self._writer: LedgerWriter | None = None
        self._entries = self._bytes = self._snapshot_bytes = 0
        self._changes: list[pb.Change] = []
        self._waiting: list[Done] = []
        self._ended: list[int] = []
        self._unsent: deque[_Group] = deque()
        self._sent: deque[_Group] = deque()
        self._uncertain: list[_Group] = []
        self._unconfirmed = 0
        self._copy: list[bytes] | None = None
        self._held = False  # during the last step of a replacement
        self._roll_wanted = False
        self._scheduled = self._retrying = False
        self._maintenance: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._lost: StorageError | None = None
        self._closing = False

    # Changes

    def begin(self, owner: str, ttl_ms: int, done: Done) -> int:
        """Begins a transaction; returns its number, which is its client's once `done` gets None.

        Raises Backpressure, LedgerClosed, OwnershipLost; then there is no transaction.
        """
        self.check_writable()
        number = self.state.next_number
        if number >= self._head.floor:
            self._maintain()
            raise Backpressure(
                f"coordinator {self.coordinator_id} has given all {number} numbers that metadata allows: "
                "metadata does not answer"
            )
        made = self.state.begin(number, owner, self._ctx.clock.wall_ms() + ttl_ms, ttl_ms)
        self._append([records.begin_change(made)], done)
        if self._floor_wanted:
            self._maintain()
        return number

    def add_topics(self, number: int, topics: Iterable[str], done: Done) -> None:
        """Adds topics to an open transaction. Raises as `check_writable`."""
        self.check_writable()
        before = len(self.state.transactions[number].topics)
        after = self.state.add_topics(number, topics)
        self._append(records.topics_changes(number, after.topics[before:]), done)

    def add_subscriptions(self, number: int, subscriptions: Iterable[Subscription], done: Done) -> None:
        """Adds subscriptions to an open transaction. Raises as `check_writable`."""
        self.check_writable()
        before = len(self.state.transactions[number].subscriptions)
        after = self.state.add_subscriptions(number, subscriptions)
        self._append(records.subscriptions_changes(number, after.subscriptions[before:]), done)

    def decide(self, number: int, action: Action, reason: Reason, done: Done) -> None:
        """Decides how an open transaction ends. The decision may be carried out once `done` gets None.

        Raises LedgerClosed, OwnershipLost.
        """
        self._check_serving()
        self.state.decide(number, action, reason)
        self._append([records.decide_change(number, action, reason)], done)

    def end(self, number: int) -> None:
        """Records that every participant confirmed; the low watermark passes the transaction once that is
        durable. Does nothing after a loss: then the next owner tells the participants again.
        """
        if self._lost is not None:
            return
        ended_ms = self._ctx.clock.wall_ms()
        self.state.end(number, ended_ms)
        self._ended.append(number)
        self._append([records.ended_change(number, ended_ms)], None)

    def check_writable(self) -> None:
        """Raises Backpressure while changes are not confirmed, or too many wait; LedgerClosed, OwnershipLost
        once the coordinator is not here any more.
        """
        self._check_serving()
        if self.obstacle is not None:
            raise Backpressure(
                f"the log of coordinator {self.coordinator_id} is not written: {self.obstacle}"
            )
        if self._unconfirmed >= self._limits.unconfirmed_max:
            raise Backpressure(
                f"{self._unconfirmed} changes of coordinator {self.coordinator_id} wait for storage"
            )

    @property
    def ref(self) -> LedgerRef | None:
        """The log's ledger; None before its first record."""
        return self._head.record_ledger

    @property
    def entries(self) -> int:
        """Entries of the open ledger; 0 without one."""
        return self._entries

    @property
    def byte_length(self) -> int:
        """Bytes of the open ledger's entries; 0 without one."""
        return self._bytes

    @property
    def unconfirmed(self) -> int:
        """Changes that wait for confirmation."""
        return self._unconfirmed

    def _check_serving(self) -> None:
        if self._lost is not None:
            raise type(self._lost)(*self._lost.args)
        if self._closing:
            raise LedgerClosed(f"coordinator {self.coordinator_id} is closing")

    # Group commit

    def _append(self, changes: Sequence[pb.Change], done: Done | None) -> None:
        """Adds changes to the turn's group. Without changes `done` is called with those before."""
        self._changes += changes
        self._unconfirmed += len(changes)
        if done is not None:
            self._waiting.append(done)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn_over)

    def _turn_over(self) -> None:
        self._scheduled = False
        if self._lost is None and not self._held:
            self._flush()

    def _flush(self) -> None:
        """Appends what has collected; without a ledger it waits for the next one."""
        if not (self._changes or self._waiting):
            return
        if self._writer is None:
            self._want_roll()
            return
        group = self._take_group()
        if self._copy is not None:
            self._copy += group.run.entries
        self._unsent.append(group)
        self._send()
        if self._is_grown():
            self._want_roll()

    def _take_group(self) -> _Group:
        entries = records.change_entries(self._changes)
        group = _Group(
            len(self._changes),
            Run(entries, publish_time_ms=self._ctx.clock.wall_ms()),
            self._waiting,
            self._ended,
        )
        self._changes, self._waiting, self._ended = [], [], []
        return group

    def _send(self) -> None:
        unsent, writer = self._unsent, self._writer
        if self._retrying or writer is None:
            return
        while unsent:
            group = unsent[0]
            entries = len(group.run.entries)
            try:
                if entries:
                    group.last_entry_id = writer.append(group.run) + entries - 1
                else:
                    group.last_entry_id = self._entries - 1
            except (Backpressure, LogFull) as error:
                # The changes remain and are written once there is space; new ones are refused.
                if self.obstacle is None:
                    log.warning("transaction log waits", coordinator=self.coordinator_id, error=str(error))
                self.obstacle = str(error)
                self._retrying = True
                asyncio.get_running_loop().call_later(_RETRY_S, self._retry)
                return
            except StorageError as error:
                asyncio.get_running_loop().call_soon(self._on_failed, writer, error)
                return
            unsent.popleft()
            self._sent.append(group)
            self._entries += entries
            self._bytes += group.run.byte_length
            self.figures.appends += 1
            self.figures.changes += group.changes
            if not entries and group.last_entry_id <= writer.last_confirmed:
                asyncio.get_running_loop().call_soon(self._on_confirmed, writer, writer.last_confirmed)
        self.obstacle = None

    def _retry(self) -> None:
        self._retrying = False
        if self._lost is None:
            self._send()

    def _on_confirmed(self, writer: LedgerWriter, last_confirmed: int) -> None:
        if writer is not self._writer:
            return
        sent = self._sent
        while sent and sent[0].last_entry_id <= last_confirmed:
            self._confirm(sent.popleft())
        self._check_drained()

    def _confirm(self, group: _Group) -> None:
        self._unconfirmed -= group.changes
        for number in group.ended:
            self.state.forget(number)
        _answer(group.waiting, None)

    def _on_failed(self, writer: LedgerWriter, error: StorageError) -> None:
        """Handles a failed writer: the fate of groups in flight is unknown, so the next ledger repeats
        everything.
        """
        if writer is not self._writer or self._lost is not None:
            return
        log.warning(
            "transaction log failed",
            coordinator=self.coordinator_id,
            ledger=writer.ref.id,
            error=str(error),
        )
        self._writer = None
        self._give_up_groups()
        self._want_roll()

    def _give_up_groups(self) -> None:
        """Leaves the groups in flight to the next ledger's snapshot."""
        self._uncertain += (*self._sent, *self._unsent)
        self._sent.clear()
        self._unsent.clear()

    def _is_grown(self) -> bool:
        limits = self._limits
        return self._entries >= limits.entries_max or self._bytes > max(
            limits.bytes_min, limits.growth * self._snapshot_bytes
        )

    # Maintenance: metadata operations, one at a time

    @property
    def _floor_wanted(self) -> bool:
        return self._head.floor - self.state.next_number < self._limits.numbers_ahead // 2

    def roll_soon(self) -> None:
        """Has the log written into a new ledger."""
        self._want_roll()

    def _want_roll(self) -> None:
        self._roll_wanted = True
        self._maintain()

    def _maintain(self) -> None:
        if self._maintenance is None and self._lost is None:
            self._maintenance = asyncio.get_running_loop().create_task(self._run_maintenance())

    async def _run_maintenance(self) -> None:
        backoff_s = _RETRY_S
        try:
            while self._lost is None and (self._roll_wanted or self._floor_wanted):
                try:
                    if self._floor_wanted:
                        await self._head.raise_floor(self.state.next_number + self._limits.numbers_ahead)
                    else:
                        await self._roll()
                except OwnershipLost as error:
                    self.lose(error)
                except (MetadataError, StorageError) as error:
                    log.warning(
                        "transaction log not rolled, retrying",
                        coordinator=self.coordinator_id,
                        error=str(error),
                    )
                    if self._writer is None:
                        self.obstacle = str(error)
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
                else:
                    backoff_s = _RETRY_S
        except Exception as error:
            log.exception("transaction log maintenance broke", coordinator=self.coordinator_id)
            self.lose(LogFailed(f"coordinator {self.coordinator_id}: maintenance broke: {error!r}"))
        finally:
            self._maintenance = None
            self._check_drained()

    async def _roll(self) -> None:
        """Switches to a new ledger that begins with a snapshot. Raises OwnershipLost, or a retriable error:
        then the old ledger, if it is open, is still the log's.
        """
        await self._head.sync()
        properties = {"coordinator": str(self.coordinator_id), "kind": KIND}
        new = NewRecordLedger(self._ctx, self._head, properties, self._on_confirmed, self._on_failed)
        await new.create()
        try:
            entries, size = await self._write_snapshot(new)
            await self._catch_up(new)
            self._held = True
            rest, self._copy = self._copy or [], None
            if rest:
                await new.append(rest)
            old = await new.adopt()
        except BaseException as error:
            self._held, self._copy = False, None
            if self._lost is None:
                self._flush()
            if isinstance(error, MagnetarError) and not isinstance(error, OwnershipLost):
                await new.abandon()
            raise
        self._held = False
        self._writer = new.writer
        self._roll_wanted = False
        self._snapshot_bytes = size
        self._entries, self._bytes = new.entries, new.byte_length
        self.obstacle = None
        self.figures.rolls += 1
        self._give_up_groups()
        covered, self._uncertain = self._uncertain, []
        for group in covered:
            self._confirm(group)
        self._flush()
        self._check_drained()
        log.info(
            "transaction log rolled",
            coordinator=self.coordinator_id,
            ledger=None if new.writer is None else new.writer.ref.id,
            entries=entries,
            bytes=size,
        )
        if old is not None:
            await finish_quietly(self._ctx, old)

    async def _write_snapshot(self, new: NewRecordLedger) -> tuple[int, int]:
        """Writes the present state in slices; returns its entries and bytes. Later changes are copied."""
        if self._writer is not None:
            self._flush()
        else:
            # Only the snapshot has these changes; it answers for them.
            self._uncertain.append(self._take_group())
        self._copy = []
        transactions = self.state.unfinished()
        outcomes = list(self.state.outcomes.items())
        batch: list[bytes] = []
        count = size = batch_bytes = 0
        for entry in snapshot_entries(transactions, outcomes, snapshot_id=_SNAPSHOT_ID):
            batch.append(entry)
            batch_bytes += len(entry)
            if batch_bytes >= _SNAPSHOT_BATCH_BYTES:
                await new.append(batch)
                count, size = count + len(batch), size + batch_bytes
                batch, batch_bytes = [], 0
            else:
                await asyncio.sleep(0)
        await new.append(batch)
        return count + len(batch), size + batch_bytes

    async def _catch_up(self, new: NewRecordLedger) -> None:
        """Copies changes to the new ledger until few are left, or they come as fast as they are copied."""
        for _ in range(_COPY_ROUNDS_MAX):
            copy = self._copy or []
            if sum(map(len, copy)) < _SETTLED_BYTES:
                return
            self._copy = []
            await new.append(copy)

    # The end

    def lose(self, error: StorageError) -> None:
        """Stops everything, fails all waiting callers and notifies the owner, once."""
        if self._lost is not None:
            return
        log.warning("transaction log lost", coordinator=self.coordinator_id, error=str(error))
        self._end(error)
        asyncio.get_running_loop().call_soon(self._on_lost, error)

    async def close(self) -> None:
        """Waits for the confirmation of all changes, then closes the ledger; idempotent.

        A caller with a deadline cancels it: then the ledger stays open for the next owner to recover.
        """
        self._closing = True
        try:
            while not self._is_drained():
                self._drained = self._drained or asyncio.get_running_loop().create_future()
                await asyncio.shield(self._drained)
            writer, self._writer = self._writer, None
            if writer is not None and self._lost is None:
                await writer.close()
        except (MetadataError, StorageError) as error:
            log.warning("transaction log was left open", coordinator=self.coordinator_id, error=str(error))
        finally:
            self._end(self._lost or LedgerClosed(f"coordinator {self.coordinator_id} is closed"))

    def _end(self, error: StorageError) -> None:
        self._lost = self._lost or error
        self._writer = None
        maintenance = self._maintenance
        if maintenance is not None and maintenance is not asyncio.current_task():
            maintenance.cancel()
        self._give_up_groups()
        waiting = [done for group in self._uncertain for done in group.waiting] + self._waiting
        self._uncertain, self._changes, self._waiting, self._ended = [], [], [], []
        _answer(waiting, error)
        self._check_drained()

    def _is_drained(self) -> bool:
        if self._lost is not None:
            return True
        busy = self._changes or self._waiting or self._unsent or self._sent or self._uncertain
        return not busy and self._maintenance is None

    def _check_drained(self) -> None:
        if self._drained is not None and self._is_drained():
            drained, self._drained = self._drained, None
            drained.set_result(None)


def _answer(waiting: Iterable[Done], error: StorageError | None) -> None:
    for done in waiting:
        try:
            done(error)
        except Exception:
            log.exception("a callback of a transaction log failed")
