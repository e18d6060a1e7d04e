"""A topic that is published to, trimmed, compacted and read at the same time, with takeovers and restarts.

`CompactionChecker` has what was promised: a view once served is never followed by an older state.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from magnetar.common.errors import MagnetarError, StorageError, TopicNotFound
from magnetar.common.metadata.values import (
    CompactedView,
    Intent,
    LedgerMetadata,
    TopicHead,
    TopicLedger,
    decode,
)
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.compacted.segment import read_index
from magnetar.ledger.compacted.settings import CompactionLimits, CompactionSettings
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    finish_intents,
    open_managed_ledger,
)
from magnetar.ledger.managed_ledger.view_record import ledgers_of
from magnetar.sim.metadata import SimMetadataServer

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.compacted.history import Entry, RandomHistory, expected_view

TOPIC = "persistent://public/default/topic"
CONFIG = ManagedLedgerConfig(ledger_entries_max=9, ledger_age_min_minutes=0, cache_megabytes=1)
HASH_KEY = bytes(range(16))


@dataclass(slots=True)
class CompactionChecker:
    """The promises of compaction, from what is known to be confirmed and to have been served."""

    history: dict[Position, Entry] = field(default_factory=dict)
    """Confirmed entries, in order."""
    horizon: Position = EARLIEST
    """The highest horizon that a reader or a finished run has seen."""
    views: int = 0
    """Number of views compared with the model."""

    def copy(self) -> CompactionChecker:
        return replace(self, history=dict(self.history))

    def confirmed(self, position: Position, entry: Entry) -> None:
        """Notes that an entry is stored."""
        assert position > max(self.history, default=EARLIEST), f"{position} is confirmed out of order"
        self.history[position] = entry

    def saw_horizon(self, horizon: Position) -> None:
        """Checks that a horizon is not older than one that was seen, and notes it."""
        assert horizon >= self.horizon, f"the horizon fell back from {self.horizon} to {horizon}"
        self.horizon = horizon

    def check_view(self, horizon: Position, found: dict[Position, bytes]) -> None:
        """Compares a whole view with the fold of the history up to its horizon."""
        self.saw_horizon(horizon)
        history = [
            replace(entry, position=position)
            for position, entry in self.history.items()
            if position <= horizon
        ]
        expected = expected_view(history)
        assert sorted(found) == sorted(expected), (
            f"the view up to {horizon} lacks {sorted(set(expected) - set(found))} and has "
            f"{sorted(set(found) - set(expected))} too much"
        )
        for entry in history:
            live = expected.get(entry.position)
            whole = {each.batch_index for each in entry.messages if not each.compacted_out}
            if live is not None and (entry.opaque or live == whole):
                assert found[entry.position] == entry.data, f"{entry.position} has other bytes"
        self.views += 1

    def check_hold(self, horizon: Position, readable: set[Position]) -> None:
        """Checks that everything after the horizon is still there."""
        lost = [position for position in self.history if position > horizon and position not in readable]
        assert not lost, f"{lost} were trimmed before they were compacted"

    def check_ledgers(self, metadata: SimMetadataServer) -> None:
        """Checks that every ledger has an owner or an intent, and that views name closed ledgers alone."""
        values = metadata.dump()
        ledgers = {
            KEYS.ledger_id_of(key): decode(LedgerMetadata, value)
            for key, value in values.items()
            if key.startswith(KEYS.ledgers_prefix)
        }
        named: dict[int, str] = {}
        intended: set[int] = set()
        for key, value in values.items():
            if key.startswith(KEYS.topic_heads_prefix()):
                head = decode(TopicHead, value)
                named.update(dict.fromkeys([ref.id for ref in head.open_ledgers], "head"))
                named[head.cursor_ledger.id] = "head"
            elif key.startswith(KEYS.topics_prefix):
                named[decode(TopicLedger, value).ref.id] = "list"
            elif key.startswith(KEYS.compacted_views_prefix):
                for ref in ledgers_of(decode(CompactedView, value)):
                    named[ref.id] = "view"
                    assert ref.id in ledgers, f"the view names ledger {ref.id}, which does not exist"
                    state = ledgers[ref.id].state
                    assert state == LedgerMetadata.CLOSED, f"the view names ledger {ref.id}, not closed"
            elif key.startswith(KEYS.intents_prefix):
                intended.add(decode(Intent, value).delete_ledger.ref.id)
        assert set(ledgers) <= set(named) | intended, f"orphans: {set(ledgers) - set(named) - intended}"
        both = {ledger_id for ledger_id in intended if named.get(ledger_id) == "view"}
        assert not both, f"ledgers {both} are named by the view and to be deleted"


@dataclass(slots=True)
class CompactionWorkload:
    """Random but repeatable."""

    seed: int
    steps: int = 20
    unknown_outcomes: bool = False
    checker: CompactionChecker = field(default_factory=CompactionChecker)
    published: dict[bytes, Entry] = field(default_factory=dict)
    ledger: ManagedLedger | None = None
    runs: int = 0
    failures: int = 0
    made: bool = False
    memory_bytes: int = 1 << 20
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def fork(self) -> CompactionWorkload:
        return replace(
            self, checker=self.checker.copy(), published=dict(self.published), ledger=None, tasks=set()
        )

    @property
    def topic(self) -> ManagedLedger:
        assert self.ledger is not None, "the topic is loaded"
        return self.ledger

    # --- doing ---

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        history = RandomHistory(rng, keys=rng.choice((2, 5)))
        store = await process.open_store()
        await self.load(process, store)
        for step in range(self.steps):
            for _ in range(rng.randrange(1, 8)):
                self.publish(history.next())
            what = rng.random()
            if what < 0.6 and not self.topic.compaction.running:
                self.spawn(self.compact(rng))
            elif what < 0.8:
                self.spawn(self.read())
            if self.unknown_outcomes and rng.random() < 0.4:
                process.metadata.lose_next_outcome(applied=rng.random() < 0.5)
            await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01, 0.03)))
            if self.lost:
                await self.load(process, store)
            if step == self.steps // 4:
                await self.load(process, store)  # a takeover, while the former owner goes on
            elif step == self.steps // 2:
                process.world.kill()
                store = await process.open_store()
                await self.load(process, store)
            elif step == self.steps * 3 // 4:
                await self.topic.close()
                await self.load(process, store)
            if step % 5 == 4:
                await self.finished()
        await self.finished()
        await self.topic.close()
        await store.close()

    @property
    def lost(self) -> bool:
        """Whether the topic's owner gave it up, after an answer that was lost."""
        return self.topic._lost is not None

    async def load(self, process: Process, store: LocalLedgerStore) -> None:
        ctx = ManagedLedgerContext(store, process.metadata, KEYS, process.clock, CONFIG, EntryCache(1 << 20))
        while True:
            listener = WorkloadListener(self)
            try:
                ledger = await open_managed_ledger(ctx, TOPIC, listener, create=not self.made, properties={})
                break
            except MagnetarError:
                assert self.unknown_outcomes, "metadata answers"
                await asyncio.sleep(0.01)
        ledger.compaction.hold(True)
        self.ledger = listener.ledger = ledger
        self.made = True
        await self.learn(ledger)

    async def finished(self) -> None:
        """Waits for what was begun."""
        while self.tasks:
            await asyncio.gather(*self.tasks)

    async def learn(self, ledger: ManagedLedger) -> set[Position]:
        """Reads the topic's own entries; those that were in flight exist from now on."""
        found: set[Position] = set()
        at = ledger.next_position(EARLIEST)
        while at is not None:
            result = await ledger.read(at, 100, 1 << 20)
            assert result.runs, "an entry that exists can be read"
            for run in result.runs:
                self.note(run)
                found.update(Position(run.ledger_id, run.first_entry_id + n) for n in range(len(run.entries)))
            at = ledger.next_position(Position(result.next.ledger_id, result.next.entry_id - 1))
        return found

    def note(self, run: Run) -> None:
        for number, data in enumerate(run.entries):
            position = Position(run.ledger_id, run.first_entry_id + number)
            if position not in self.checker.history:
                self.checker.confirmed(position, self.published[data])

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(task := asyncio.get_running_loop().create_task(coroutine))
        task.add_done_callback(self.tasks.discard)

    def publish(self, entry: Entry) -> None:
        self.published[entry.data] = entry
        try:
            self.topic.append(entry.run(), None)
        except StorageError:
            assert self.unknown_outcomes, "nothing fails"

    async def compact(self, rng: random.Random) -> None:
        await self.compact_as(self.topic, rng)

    async def compact_as(self, ledger: ManagedLedger, rng: random.Random) -> None:
        """Compacts as the topic's owner, or as one that was it."""
        self.runs += 1
        settings = CompactionSettings(
            hash_key=HASH_KEY,
            limits=CompactionLimits(memory_bytes=rng.choice((self.memory_bytes, 200))),
            rewrite=rng.random() < 0.2,
        )
        try:
            result = await ledger.compaction.run(ledger.read_limit(), settings)
        except MagnetarError:
            self.failures += 1
            return
        if self.ledger is ledger and result.did_anything:
            self.checker.saw_horizon(result.horizon)
        ledger.trim()

    async def read(self) -> None:
        """A reader from earliest that reads the view in small parts, while it changes."""
        ledger = self.topic
        compaction = ledger.compaction
        seen: dict[str, Position] = {}
        at = EARLIEST
        try:
            while compaction.has_after(at):
                result = await compaction.read(Position(at.ledger_id, at.entry_id + 1), 2, 1 << 20)
                if self.ledger is ledger and compaction.horizon is not None:
                    self.checker.saw_horizon(compaction.horizon)
                for run in result.runs:
                    position = Position(run.ledger_id, run.first_entry_id)
                    assert position > at, "a reader goes on"
                    at = Position(run.ledger_id, run.last_entry_id)
                    for message in self.published[self.checker.history[at].data].messages:
                        if message.key is not None:
                            assert seen.get(message.key, EARLIEST) <= at
                            seen[message.key] = at
                await asyncio.sleep(0.001)
        except MagnetarError:
            assert self.ledger is not ledger or self.unknown_outcomes, "the topic's owner can read its view"
            return

    # --- checking ---

    async def check(self, process: Process) -> None:
        store = await process.open_store()
        ctx = ManagedLedgerContext(store, process.metadata, KEYS, process.clock, CONFIG, EntryCache(1 << 20))
        self.checker.check_ledgers(process.world.metadata)
        await finish_intents(ctx)
        try:
            self.ledger = await open_managed_ledger(
                ctx, TOPIC, WorkloadListener(self), create=False, properties={}
            )
        except TopicNotFound:
            assert not self.made, "the topic is gone"
            return
        ledger = self.topic
        ledger.compaction.hold(True)
        readable = await self.learn(ledger)
        self.checker.check_hold(ledger.compaction.horizon or EARLIEST, readable)
        await self.check_view(ledger, ctx)
        rng = process.loop.rng
        await self.compact(rng)
        assert ledger.compaction.horizon == (ledger.read_limit() if self.checker.history else None)
        await self.check_view(ledger, ctx)
        await asyncio.sleep(0.05)
        await finish_intents(ctx)
        self.checker.check_ledgers(process.world.metadata)
        process.world.disk.check_alive()

    async def check_view(self, ledger: ManagedLedger, ctx: ManagedLedgerContext) -> None:
        compaction = ledger.compaction
        if compaction.horizon is None:
            assert self.checker.horizon == EARLIEST, "a view that was served is gone"
            return
        found: dict[Position, bytes] = {}
        at = EARLIEST
        while compaction.has_after(at):
            result = await compaction.read(Position(at.ledger_id, at.entry_id + 1), 3, 1 << 20)
            for run in result.runs:
                for number, data in enumerate(run.entries):
                    at = Position(run.ledger_id, run.first_entry_id + number)
                    found[at] = data
        self.checker.check_view(compaction.horizon, found)
        stored = await ctx.metadata.get(KEYS.compacted_view(ledger.creation_id))
        assert stored is not None
        for segment in decode(CompactedView, stored.value).segments:
            index = await read_index(await ctx.ledgers.open(LedgerRef(segment.ref.id, segment.ref.key)))
            assert index.end.entries == segment.entries, "a segment is complete"


class WorkloadListener:
    """Notes what is confirmed the moment it is, while its ledger is the topic's."""

    def __init__(self, workload: CompactionWorkload) -> None:
        self.workload = workload
        self.ledger: ManagedLedger | None = None

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        if self.ledger is None or self.workload.ledger is self.ledger:
            for run, _ in publishes:
                self.workload.note(run)

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        assert self.workload.unknown_outcomes, "nothing fails"

    def on_lost(self, error: StorageError) -> None:
        assert isinstance(error, MagnetarError)
