"""The processes and owners that one topic has in the course of a test, one after the other.

Every process has a simulated loop of its own, whose time stands still between two calls of `act`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from magnetar.common.errors import StorageError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    open_managed_ledger,
)
from magnetar.sim.loop import WALL_START_MS, SimLoop
from magnetar.sim.loop import run as end_loop

from tests.property.managed_ledger.reference import Entry, Topic, as_found
from tests.simulation.power_loss import KEYS, Process, World

T = TypeVar("T")

NAME = "persistent://public/default/topic"

REACHED: Counter[str] = Counter()
"""What happened in the examples so far: a model that never comes to a crash shows nothing of crashes."""


class Listener:
    """Hands confirmations to the model as long as its owner is the topic's owner."""

    def __init__(self, model: Topic) -> None:
        self.model = model
        self.fenced = self.dead = self.lost = False

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        if self.dead:
            return
        assert not self.fenced, "a former owner confirms nothing"
        for run, _ in publishes:
            index = run.first_index
            for number, data in enumerate(run.entries):
                position = Position(run.ledger_id, run.first_entry_id + number)
                index += self.model.confirm(data, position, run.publish_time_ms, index).messages

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        raise AssertionError("the disk has room and no errors") from error

    def on_lost(self, error: StorageError) -> None:
        assert not self.lost, "the loss is told once"
        self.lost = True


class Owners:
    """The present owner of the topic, and how it comes to another one."""

    ledger: ManagedLedger
    store: LocalLedgerStore
    ctx: ManagedLedgerContext
    listener: Listener
    loop: SimLoop
    process: Process
    config: ManagedLedgerConfig

    def begin(self, config: ManagedLedgerConfig, cache_bytes: int, seed: int) -> None:
        self.model = Topic()
        self.config = config
        self.cache_bytes = cache_bytes
        self.seed = seed
        self.world = World.new()
        self.wall_ms = WALL_START_MS
        self.start_process()
        self.act(self.load(create=True))

    def start_process(self) -> None:
        self.seed += 1
        self.loop = SimLoop(self.seed, time_max_s=1e9)
        self.act(self.open_store())

    async def open_store(self) -> None:
        self.process = Process(self.loop, self.world)
        self.process.clock.wall_offset_ms = self.wall_ms
        self.store = await self.process.open_store()
        self.ctx = ManagedLedgerContext(
            self.store,
            self.process.metadata,
            KEYS,
            self.process.clock,
            self.config,
            EntryCache(self.cache_bytes),
        )

    def end_process(self) -> None:
        self.wall_ms = self.process.clock.wall_ms()
        end_loop(self.loop, asyncio.sleep(0))

    def act(self, doing: Coroutine[Any, Any, T]) -> T:
        result = self.loop.run_until_complete(doing)
        if self.loop.errors:
            raise self.loop.errors[0]
        return result

    async def load(self, *, create: bool = False) -> None:
        listener = Listener(self.model)
        self.ledger = await open_managed_ledger(self.ctx, NAME, listener, create=create, properties={})
        self.listener = listener
        await self.adopt()

    async def adopt(self) -> None:
        """What recovery found must be what was confirmed, then some of what was on its way; it is the
        model's state from here on."""
        model = self.model
        self.notice_trimming()
        found = await self.read_from(EARLIEST, 1_000, 1 << 20)
        if found:
            model.untrim(found[0].position)
        known = list(model.entries)
        assert [(entry.data, entry.position) for entry in found[: len(known)]] == [
            (entry.data, entry.position) for entry in known
        ], "what was confirmed is there, in order"
        for entry in found[len(known) :]:
            model.confirm(entry.data, entry.position, entry.publish_time_ms, entry.first_index)
            REACHED["recovered"] += 1
        REACHED["lost"] += len(model.on_their_way)
        model.on_their_way.clear()
        assert self.ledger.next_index == model.next_index
        durable = {name for name, sub in model.subscriptions.items() if sub.durable_cursor}
        assert set(self.ledger.cursors) == durable, "durable subscriptions are there, and no others"
        for name in list(model.subscriptions):
            if name not in durable:
                del model.subscriptions[name]
                continue
            subscription, cursor = model.subscriptions[name], self.ledger.cursors[name]
            everything = subscription.asked.entries.union(model.positions)
            reason = subscription.refuses(cursor, everything)
            assert reason is None, f"subscription {name}: {reason}"
            model.subscriptions[name] = as_found(cursor, everything)

    def restart_in_order(self) -> None:
        self.act(self.ledger.close())
        assert not self.model.on_their_way, "closing waits for what is on its way"
        for subscription in self.model.subscriptions.values():
            subscription.durable = subscription.asked.copy()
        self.act(self.store.close())
        self.end_process()
        self.start_process()
        self.act(self.load())

    def restart_after(self, outage: str, seed: int) -> None:
        world = self.world.after(outage, random.Random(seed))
        self.listener.dead = True
        self.end_process()
        self.world = world
        self.start_process()
        self.act(self.load())

    def second_owner_takes_over(self) -> None:
        former, listener = self.ledger, self.listener
        self.act(self.load())
        listener.fenced = True
        self.act(self.stand_down(former, listener))

    async def stand_down(self, former: ManagedLedger, listener: Listener) -> None:
        flushed: list[StorageError | None] = []
        for cursor in former.cursors.values():
            cursor.ack(*(former.next_position(cursor.mark_delete) or EARLIEST))
        if any(cursor.dirty for cursor in former.cursors.values()):
            former.flush_cursors(flushed.append)
        try:
            former.append(Run([b"never"]), None)
        except StorageError:
            pass
        for _ in range(100):
            if listener.lost:
                break
            await asyncio.sleep(0.1)
        assert listener.lost, "the former owner hears that it lost the topic"
        assert None not in flushed, "a former owner flushes nothing"

    def notice_trimming(self) -> None:
        first = self.ledger.next_position(EARLIEST)
        gone = self.model.trim(first)
        assert not any(self.model.needs(position) for position in gone), "somebody needed what was trimmed"
        assert not gone or first is None or first.entry_id == 0, "trimming takes whole ledgers"
        REACHED["trimmed"] += bool(gone)

    async def read_from(self, start: Position, entries_max: int, bytes_max: int) -> list[Entry]:
        result = await self.ledger.read(start, entries_max, bytes_max)
        assert not result.unreadable, "nothing is damaged"
        return [entry for run in result.runs for entry in as_entries(run)]


def as_entries(run: Run) -> list[Entry]:
    """A run's entries as the model has them."""
    entries = []
    index = run.first_index
    for number, data in enumerate(run.entries):
        messages = 1 if run.message_counts is None else run.message_counts[number]
        position = Position(run.ledger_id, run.first_entry_id + number)
        entries.append(Entry(data, messages, position, run.publish_time_ms, index))
        index += messages
    return entries
