"""A workload on one topic: publishes, acknowledgements of every kind, subscriptions that come and go, seeks,
flushes, rolls, trims, restarts, takeovers, bad syncs. It knows what was promised, and what may be.

A subscription's promises are kept by generation: a seek begins a new one. What recovery finds must be one of
the generations from the last confirmed one on, hold everything confirmed in it, and nothing never asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from magnetar.common.errors import MagnetarError, StorageError, TopicNotFound
from magnetar.common.metadata.values import TopicHead, TopicLedger, decode
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import (
    Cursor,
    EntryCache,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    ReadResult,
    finish_intents,
    open_managed_ledger,
)
from magnetar.sim.metadata import SimMetadataServer

from tests.simulation.power_loss import KEYS, Process

TOPIC = "persistent://public/default/topic"

CONFIG = ManagedLedgerConfig(
    ledger_entries_max=12,
    ledger_age_min_minutes=0,
    cursor_flush_interval_s=0.02,
    cursor_ledger_entries_max=9,
    cursor_ledger_bytes_min=200,
    cache_megabytes=1,
)

BATCH = 5


@dataclass(slots=True)
class Generation:
    """A subscription since a seek: everything up to `base` is acknowledged, and what is in these sets."""

    base: Position
    issued: set[Position] = field(default_factory=set)
    confirmed: set[Position] = field(default_factory=set)
    bits_issued: dict[Position, int] = field(default_factory=dict)
    bits_confirmed: dict[Position, int] = field(default_factory=dict)
    counts_issued: dict[Position, int] = field(default_factory=dict)
    counts_confirmed: dict[Position, int] = field(default_factory=dict)

    def confirm(self, asked: Generation) -> None:
        """What was asked for when `asked` was copied is on disk."""
        self.confirmed |= asked.issued
        self.bits_confirmed.update(asked.bits_issued)
        self.counts_confirmed.update(asked.counts_issued)

    def refuses(self, cursor: Cursor, positions: list[Position]) -> str | None:
        """Why a recovered cursor cannot be this; None when it can."""
        for position in positions:
            acked = cursor.is_acked(*position)
            if not acked and (position <= self.base or position in self.confirmed):
                return f"{position} was acknowledged, and is not"
            if acked and position > self.base and position not in self.issued:
                return f"{position} was never acknowledged, and is"
            if acked or position <= self.base:
                continue
            bits = cursor.batch_acked(*position)
            if bits & self.bits_confirmed.get(position, 0) != self.bits_confirmed.get(position, 0):
                return f"acknowledged messages of the batch {position} came back"
            if bits & ~self.bits_issued.get(position, 0):
                return f"messages of the batch {position} were never acknowledged"
            count = cursor.delivery_count(*position)
            lowest, highest = self.counts_confirmed.get(position, 0), self.counts_issued.get(position, 0)
            if not lowest <= count <= highest:
                return f"{position} was delivered again {lowest} to {highest} times, not {count}"
        return None


@dataclass(slots=True)
class Promised:
    """A subscription; `exists` is None while its creation or deletion is not confirmed."""

    exists: bool | None
    generations: list[Generation]
    sure: int = 0
    """The first generation that recovery may find."""


@dataclass(slots=True)
class ManagedLedgerWorkload:
    """Random but repeatable. `sync_error_at`: operations of the disk at which a file's sync answers EIO."""

    seed: int
    steps: int = 40
    sync_error_at: frozenset[int] = frozenset()
    made: bool = False
    published: int = 0
    confirmed: dict[Position, int] = field(default_factory=dict)
    """Confirmed entries, in order, with the number of their publish."""
    batches: set[Position] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    subscriptions: dict[str, Promised] = field(default_factory=dict)
    rolls: int = 0
    losses: int = 0
    ledger: ManagedLedger | None = None
    config: ManagedLedgerConfig = CONFIG
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Those that run, and that die with the run."""

    def fork(self) -> ManagedLedgerWorkload:
        twin = replace(self, ledger=None, tasks=set())
        twin.confirmed = dict(self.confirmed)
        twin.batches = set(self.batches)
        twin.refused = set(self.refused)
        twin.subscriptions = deepcopy(self.subscriptions)
        return twin

    # --- doing ---

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        process.world.disk.faults.sync_errors = set(self.sync_error_at)
        store = await self.open_store(process)
        await self.load(process, store)
        for step in range(self.steps):
            await self.step(rng)
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.003, 0.01, 0.03)))
            if step == self.steps // 4:
                await self.take_over(process, store)
            elif step == self.steps // 2:
                process.world.kill()
                store = await self.open_store(process)
                await self.load(process, store)
            elif step == self.steps * 3 // 4:
                await self.topic.close()
                await self.load(process, store)
        await self.topic.close()
        await store.close()

    @property
    def topic(self) -> ManagedLedger:
        assert self.ledger is not None, "the topic is loaded"
        return self.ledger

    async def open_store(self, process: Process) -> LocalLedgerStore:
        while True:
            try:
                return await process.open_store()
            except OSError:
                assert self.sync_error_at, "the disk has no errors"

    def context(self, process: Process, store: LocalLedgerStore) -> ManagedLedgerContext:
        return ManagedLedgerContext(store, process.metadata, KEYS, process.clock, CONFIG, EntryCache(1 << 20))

    async def load(self, process: Process, store: LocalLedgerStore) -> None:
        """Load the topic, and check it against the promises."""
        ctx = self.context(process, store)
        while True:
            try:
                self.ledger = await open_managed_ledger(
                    ctx, TOPIC, _Listener(self), create=not self.made, properties={}
                )
                break
            except StorageError:
                assert self.sync_error_at, "the disk has no errors"
                await asyncio.sleep(1.5)
        self.made = True
        await self.verify(ctx)

    async def take_over(self, process: Process, store: LocalLedgerStore) -> None:
        """A second owner comes while the first one publishes; the first one may confirm nothing more."""
        former = self.topic
        listener = former._listener
        assert isinstance(listener, _Listener)
        try:
            former.append(Run([b"%d" % self.next_number()]), None)
        except StorageError:
            assert self.sync_error_at, "the disk has no errors"
        listener.fenced = True
        await self.load(process, store)
        try:
            former.append(Run([b"never"]), None)
        except StorageError:
            pass
        former.flush_cursors(lambda error: _fail("a former owner flushed") if error is None else None)
        for _ in range(1000):
            if listener.lost:
                break
            await asyncio.sleep(0.01)
        assert listener.lost, "the former owner is told that it lost the topic"
        self.losses += 1

    async def step(self, rng: random.Random) -> None:
        for _ in range(rng.randrange(1, 6)):
            rng.choice((self.publish, self.publish, self.publish, self.acknowledge, self.acknowledge))(rng)
        what = rng.random()
        if len(self.subscriptions) < 1 or what < 0.08:
            self.spawn(self.subscribe(f"sub-{rng.randrange(6)}", rng))
        elif what < 0.12:
            self.spawn(self.unsubscribe(rng.choice(sorted(self.subscriptions))))
        elif what < 0.16:
            self.spawn(self.seek(rng.choice(sorted(self.subscriptions)), rng))
        elif what < 0.4:
            self.flush()
        elif what < 0.5:
            await self.flushed()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(task := asyncio.get_running_loop().create_task(coroutine))
        task.add_done_callback(self.tasks.discard)

    def next_number(self) -> int:
        self.published += 1
        return self.published

    def publish(self, rng: random.Random) -> None:
        batch = rng.random() < 0.3
        count = rng.choice((1, 1, 2, 4))
        entries = [b"%d " % self.next_number() + bytes(rng.choice((0, 10, 200))) for _ in range(count)]
        run = Run(entries, message_counts=[BATCH] * count if batch else None)
        try:
            self.topic.append(run, batch)
        except StorageError:
            assert self.sync_error_at, "the disk has no errors"

    def acknowledge(self, rng: random.Random) -> None:
        name, cursor = self.some_cursor(rng)
        if cursor is None or not self.confirmed:
            return
        generation = self.subscriptions[name].generations[-1]
        pending = [position for position in self.confirmed if not cursor.is_acked(*position)]
        if not pending:
            return
        position = pending[min(len(pending) - 1, int(rng.expovariate(0.3)))]
        kind = rng.random()
        if kind < 0.2:
            cursor.ack_cumulative(position)
            generation.issued.update(one for one in self.confirmed if one <= position)
        elif kind < 0.4 and position in self.batches:
            bits = rng.randrange(1, 1 << BATCH)
            generation.bits_issued[position] = generation.bits_issued.get(position, 0) | bits
            if cursor.ack_batch(*position, bits, BATCH):
                generation.issued.add(position)
        elif kind < 0.5:
            count = cursor.count_redelivery(*position)
            generation.counts_issued[position] = max(count, generation.counts_issued.get(position, 0))
        elif kind < 0.6:
            last = position.entry_id + rng.randrange(4)
            cursor.ack_range(position.ledger_id, position.entry_id, last)
            generation.issued.update(
                one for one in self.confirmed if position <= one <= (position.ledger_id, last)
            )
        else:
            assert cursor.ack(*position)
            generation.issued.add(position)

    def some_cursor(self, rng: random.Random) -> tuple[str, Cursor | None]:
        names = sorted(name for name, promised in self.subscriptions.items() if promised.exists)
        name = rng.choice(names) if names else ""
        return name, self.topic.cursors.get(name)

    def flush(self, then: Callable[[StorageError | None], None] | None = None) -> None:
        asked = [
            (promised, promised.generations[-1], deepcopy(promised.generations[-1]))
            for promised in self.subscriptions.values()
            if promised.exists
        ]

        def done(error: StorageError | None) -> None:
            if error is None:
                for _promised, generation, copy in asked:
                    generation.confirm(copy)
            if then is not None:
                then(error)

        self.topic.flush_cursors(done)

    async def flushed(self) -> None:
        flushed: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        self.flush(flushed.set_result)
        await flushed

    async def subscribe(self, name: str, rng: random.Random) -> None:
        promised = self.subscriptions.get(name)
        if promised is not None:
            return
        position = rng.choice((EARLIEST, LATEST, LATEST))
        base = self.topic._clamp(position)
        promised = self.subscriptions[name] = Promised(None, [Generation(base)])
        topic = self.topic
        try:
            cursor = await topic.create_cursor(name, position, {"of": name})
        except StorageError:
            return
        if self.ledger is not topic:
            return  # somebody else has it now, and saw what is there
        assert cursor.mark_delete >= base
        promised.exists = True

    async def unsubscribe(self, name: str) -> None:
        promised = self.subscriptions[name]
        if not promised.exists or name not in self.topic.cursors:
            return
        promised.exists = None
        topic = self.topic
        try:
            await topic.delete_cursor(name)
        except StorageError:
            return
        if self.ledger is not topic:
            return
        del self.subscriptions[name]

    async def seek(self, name: str, rng: random.Random) -> None:
        promised = self.subscriptions[name]
        cursor = self.topic.cursors.get(name)
        if not promised.exists or cursor is None:
            return
        position = rng.choice([EARLIEST, LATEST, *self.confirmed])
        generation = Generation(self.topic._clamp(position))
        promised.generations.append(generation)
        topic = self.topic
        try:
            await topic.reset_cursor(cursor, position)
        except StorageError:
            return
        if self.ledger is not topic:
            return
        promised.sure = max(promised.sure, promised.generations.index(generation))

    # --- checking ---

    async def check(self, process: Process) -> None:
        store = await self.open_store(process)
        ctx = self.context(process, store)
        await finish_intents(ctx)
        try:
            self.ledger = await open_managed_ledger(ctx, TOPIC, _Listener(self), create=False, properties={})
        except TopicNotFound:
            assert not self.made, "the topic is gone"
            return
        await self.verify(ctx)
        self.check_no_orphans(process.world.metadata)
        # Life goes on, and what is promised now holds as well.
        rng = process.loop.rng
        for _ in range(3):
            self.publish(rng)
            self.acknowledge(rng)
        await self.subscribe("after", rng)
        await self.flushed()
        await asyncio.sleep(0.05)
        process.world.disk.check_alive()
        assert self.topic._appender.drained, "everything is confirmed after a while"

    async def verify(self, ctx: ManagedLedgerContext) -> None:
        """Compare the topic with every promise; what is found is promised from now on."""
        ledger = self.topic
        found, indexes = await self.read_everything(ledger)
        if self.ledger is not ledger:
            return  # somebody else has it now, and looks for himself
        first = next(iter(found), ledger.last_confirmed)
        lost = [position for position in self.confirmed if position not in found]
        assert not any(position > first for position in lost), f"confirmed entries {lost} are gone"
        for position, number in self.confirmed.items():
            assert found.get(position, number) == number, f"{position} holds something else"
        assert sorted(found.values()) == list(found.values()), "entries changed their order"
        assert not self.refused.intersection(found.values()), "what was refused is there"
        assert indexes == sorted(indexes), "message indexes go up"
        assert not indexes or ledger.next_index == indexes[-1], "message indexes go on"
        self.verify_cursors(ledger, found, lost)
        self.confirmed = found

    async def read(self, ledger: ManagedLedger, at: Position) -> ReadResult:
        return await ledger.read(at, 50, 3_000)

    async def read_everything(self, ledger: ManagedLedger) -> tuple[dict[Position, int], list[int]]:
        found: dict[Position, int] = {}
        indexes: list[int] = []
        at = ledger.next_position(EARLIEST)
        while at is not None:
            result = await self.read(ledger, at)
            assert result.runs, "an entry that exists can be read"
            assert not result.unreadable, "nothing is damaged"
            for run in result.runs:
                assert not indexes or run.first_index == indexes[-1], "message indexes have no gap"
                indexes.append(run.first_index + run.messages)
                for number, data in enumerate(run.entries):
                    position = Position(run.ledger_id, run.first_entry_id + number)
                    found[position] = int(data.split(b"\0")[0])
                    if run.message_counts is not None:
                        self.batches.add(position)
            at = ledger.next_position(Position(result.next.ledger_id, result.next.entry_id - 1))
        return found, indexes

    def verify_cursors(self, ledger: ManagedLedger, found: dict[Position, int], lost: list[Position]) -> None:
        for name, cursor in ledger.cursors.items():
            assert name in self.subscriptions, f"subscription {name} was deleted, and is back"
            assert cursor.properties == {"of": name}
        for name, promised in list(self.subscriptions.items()):
            if name not in ledger.cursors:
                assert not promised.exists, f"subscription {name} is gone"
                del self.subscriptions[name]
                continue
            cursor = ledger.cursors[name]
            everything = [*lost, *found]
            reasons = [generation.refuses(cursor, everything) for generation in promised.generations]
            possible = [at for at, reason in enumerate(reasons) if reason is None and at >= promised.sure]
            assert possible, f"subscription {name}: {reasons[promised.sure :]}"
            backlog = sum(not cursor.is_acked(*position) for position in found)
            assert cursor.backlog() == backlog, f"subscription {name} has a wrong backlog"
            if promised.exists:
                assert all(cursor.is_acked(*position) for position in lost), f"{name} needed {lost}"
            promised.exists = True
            promised.generations = [self.as_found(cursor, everything)]
            promised.sure = 0

    def as_found(self, cursor: Cursor, positions: list[Position]) -> Generation:
        acked = {position for position in positions if cursor.is_acked(*position)}
        rest = [position for position in positions if position not in acked]
        bits = {position: bits for position in rest if (bits := cursor.batch_acked(*position))}
        counts = {position: count for position in rest if (count := cursor.delivery_count(*position))}
        return Generation(
            cursor.mark_delete, set(acked), set(acked), dict(bits), dict(bits), dict(counts), dict(counts)
        )

    def check_no_orphans(self, metadata: SimMetadataServer) -> None:
        """Every ledger of the store is named by the topic, or by an intent."""
        values = metadata.dump()
        intents = [key.removeprefix(KEYS.intents_prefix) for key in values if KEYS.intents_prefix in key]
        if any(not intent.startswith("delete-objects-") for intent in intents):
            return
        named: set[int] = set()
        for key, value in values.items():
            if key.startswith(KEYS.topic_heads_prefix()):
                head = decode(TopicHead, value)
                named.update(ref.id for ref in head.open_ledgers)
                named.add(head.cursor_ledger.id)
            elif "/topics/" in key:
                named.add(decode(TopicLedger, value).ref.id)
        kept = {KEYS.ledger_id_of(key) for key in values if key.startswith(KEYS.ledgers_prefix)}
        assert kept <= named, f"ledgers {kept - named} are orphans"


class _Listener:
    """Notes what is confirmed the moment it is."""

    def __init__(self, workload: ManagedLedgerWorkload) -> None:
        self.workload = workload
        self.lost = False
        self.fenced = False

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        if self.fenced and self.workload.topic._listener is not self:
            _fail("a former owner confirmed")
        for run, batch in publishes:
            for number, data in enumerate(run.entries):
                position = Position(run.ledger_id, run.first_entry_id + number)
                last = max(self.workload.confirmed, default=EARLIEST)
                assert position > last, f"{position} is confirmed after {last}"
                self.workload.confirmed[position] = int(data.split(b"\0")[0])
                if batch:
                    self.workload.batches.add(position)

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        assert self.workload.sync_error_at, "the disk has no errors"
        for run, _ in publishes:
            self.workload.refused.update(int(data.split(b"\0")[0]) for data in run.entries)

    def on_lost(self, error: StorageError) -> None:
        assert not self.lost, "the loss is told once"
        assert isinstance(error, MagnetarError)
        self.lost = True


def _fail(reason: str) -> None:
    raise AssertionError(reason)
