"""A topic in a simulated broker: its managed ledger with transactions, and a plain delivery on top of it.

The delivery is as simple as it can be: any consumer gets what is not acknowledged, not withheld by a pending
acknowledgement, not of an aborted transaction, and not with a consumer since a short while.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.common.errors import MagnetarError, StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    Cursor,
    ManagedLedger,
    ManagedLedgerContext,
    open_managed_ledger,
)
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from pyroaring import BitMap

from tests.transactions.sim_calls import NOT_STORED
from tests.transactions.sim_messages import entry_of, names_of, positions_of

KEEPER: Final = "keeper"
"""A subscription that keeps every entry for the end."""
READ_ENTRIES: Final = 50
READ_BYTES: Final = 1 << 16


class NotStored(StorageError):
    """A publish was given up, and is certainly not part of the topic."""


assert NotStored.__name__ == NOT_STORED


@dataclass(slots=True)
class _Listener:
    """Answers publishes."""

    lost: StorageError | None = None
    confirmed: int = 0

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        for run, future in publishes:
            assert isinstance(future, asyncio.Future)
            self.confirmed += len(run.entries)
            if not future.done():
                future.set_result(Position(run.ledger_id, run.first_entry_id))

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        for _, future in publishes:
            assert isinstance(future, asyncio.Future)
            if not future.done():
                future.set_exception(NotStored(f"not stored in time: {error}"))

    def on_lost(self, error: StorageError) -> None:
        self.lost = error


@dataclass(slots=True)
class _Entry:
    """A readable entry with its messages."""

    position: Position
    names: list[str]

    @property
    def size(self) -> int:
        return len(self.names)


@dataclass(slots=True)
class SimTopic:
    """A loaded topic."""

    name: str
    ledger: ManagedLedger
    listener: _Listener
    clock: Callable[[], float]
    redelivered_after_s: float = 0.3
    """Time after which an entry goes to another consumer as well."""
    delivered: dict[tuple[str, Position], tuple[str, float]] = field(default_factory=dict)
    """(consumer, since when), by subscription and entry."""

    @classmethod
    async def load(
        cls, ctx: ManagedLedgerContext, name: str, clock: Callable[[], float], *, create: bool
    ) -> SimTopic:
        listener = _Listener()
        ledger = await open_managed_ledger(ctx, name, listener, create=create, properties={})
        await ledger.create_cursor(KEEPER, EARLIEST, {})
        return cls(name, ledger, listener, clock)

    @property
    def lost(self) -> bool:
        return self.listener.lost is not None

    @property
    def transactions(self) -> TopicTransactions:
        return self.ledger.transactions or self.ledger.use_transactions()

    async def publish(self, names: list[str], txn: TxnId | None) -> Position:
        """Appends a message or a batch; returns its position once it is durable."""
        stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        run = Run([entry_of(names)], message_counts=[len(names)] if len(names) > 1 else None)
        if txn is not None:
            run.txn = txn
            _ = self.transactions
        self.ledger.append(run, stored)
        return await stored

    async def subscription(self, name: str) -> Cursor:
        cursor = self.ledger.cursors.get(name)
        return cursor or await self.ledger.create_cursor(name, EARLIEST, {})

    async def read(self, after: Position) -> list[_Entry]:
        """Returns committed entries behind a position, as far as they may be read now."""
        found: list[_Entry] = []
        transactions = self.ledger.transactions
        at = self.ledger.next_position(after)
        while at is not None and len(found) < READ_ENTRIES:
            cached = self.ledger.read_cached(at, READ_ENTRIES, READ_BYTES)
            runs = [cached] if cached else (await self.ledger.read(at, READ_ENTRIES, READ_BYTES)).runs
            for run in runs:
                for number, data in enumerate(run.entries):
                    position = Position(run.ledger_id, run.first_entry_id + number)
                    if transactions is None or not transactions.is_aborted(*position):
                        found.append(_Entry(position, names_of(data)))
            at = self.ledger.next_position(Position(runs[-1].ledger_id, runs[-1].last_entry_id))
        return found

    async def receive(
        self, subscription: str, consumer: str, most: int, *, ordered: bool
    ) -> list[dict[str, Any]]:
        """Returns entries for a consumer, with the messages that are free.

        An `ordered` consumer is the only one, and begins anew at the mark-delete position each time.
        """
        cursor = await self.subscription(subscription)
        entries = await self.read(cursor.mark_delete)
        found: list[dict[str, Any]] = []
        for entry, free in self._free(cursor, entries, ordered=ordered):
            key, now = (subscription, entry.position), self.clock()
            holder, since = self.delivered.get(key, ("", -math.inf))
            if now - since < self.redelivered_after_s and not ordered:
                continue
            self.delivered[key] = consumer, now
            positions = positions_of(entry.position, entry.size)
            messages = [(entry.names[index], positions[index]) for index in free]
            found.append({"size": entry.size, "messages": messages, "again": bool(holder)})
            if len(found) == most:
                break
        return found

    def _free(
        self, cursor: Cursor, entries: list[_Entry], *, ordered: bool
    ) -> Iterator[tuple[_Entry, list[int]]]:
        """Yields entries that are not acknowledged or withheld, with the free messages of each."""
        transactions = self.ledger.transactions
        pending = None if transactions is None or ordered else transactions.pending(cursor)
        for entry in entries:
            position = entry.position
            if cursor.is_acked(*position):
                continue
            bits = cursor.batch_acked(*position)
            if pending is not None:
                if position.entry_id in pending.withheld.get(position.ledger_id, ()):
                    continue
                if pending.cumulative is not None and position <= pending.cumulative[1]:
                    continue
                bits |= pending.batches.get(position, 0)
            free = [index for index in range(entry.size) if not bits >> index & 1]
            if free:
                yield entry, free

    async def acknowledge(
        self, subscription: str, txn: TxnId | None, entries: list[dict[str, Any]], *, cumulative: bool
    ) -> None:
        """Acknowledges entries, each {position, size, indexes}; durable on return."""
        cursor = await self.subscription(subscription)
        done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
        if txn is None:
            for entry in entries:
                position = Position(*entry["position"])
                if entry["size"] == 1:
                    cursor.ack(*position)
                else:
                    cursor.ack_batch(*position, _bits(entry["indexes"]), entry["size"])
            self.ledger.flush_cursors(done.set_result)
        else:
            self.transactions.ack(txn, cursor, _pending(entries, cumulative=cumulative), done.set_result)
        if (error := await done) is not None:
            raise error

    def give_back(self, subscription: str, consumer: str) -> None:
        """Frees everything that a consumer has."""
        for key, (holder, _) in list(self.delivered.items()):
            if key[0] == subscription and holder == consumer:
                self.delivered[key] = holder, -math.inf

    async def end(self, txn: TxnId, action: Action, low_watermark: int) -> None:
        """Ends a transaction here; durable on return."""
        done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
        self.transactions.end(txn, action, low_watermark, done.set_result)
        if (error := await done) is not None:
            raise error

    async def everything(self) -> list[tuple[Any, str]]:
        """Returns all committed messages, as (position, name)."""
        found: list[tuple[Any, str]] = []
        after = EARLIEST
        while entries := await self.read(after):
            for entry in entries:
                found += zip(positions_of(entry.position, entry.size), entry.names, strict=True)
            after = entries[-1].position
        return found

    async def left(self, subscription: str) -> list[str]:
        """Returns the messages that a subscription has not acknowledged, pending ones too."""
        cursor = await self.subscription(subscription)
        found: list[str] = []
        after = cursor.mark_delete
        while entries := await self.read(after):
            after = entries[-1].position
            for entry in entries:
                if not cursor.is_acked(*entry.position):
                    bits = cursor.batch_acked(*entry.position)
                    found += [name for index, name in enumerate(entry.names) if not bits >> index & 1]
        return found


def _bits(indexes: list[int]) -> int:
    return sum(1 << index for index in indexes)


def _pending(entries: list[dict[str, Any]], *, cumulative: bool) -> PendingAck:
    if cumulative:
        return PendingAck(cumulative=Position(*entries[-1]["position"]))
    individual: dict[int, BitMap] = {}
    batches: dict[tuple[int, int], tuple[int, int]] = {}
    for entry in entries:
        position = Position(*entry["position"])
        if entry["size"] == len(entry["indexes"]):
            individual.setdefault(position.ledger_id, BitMap()).add(position.entry_id)
        else:
            batches[position] = _bits(entry["indexes"]), entry["size"]
    return PendingAck(individual=individual, batches=batches)
