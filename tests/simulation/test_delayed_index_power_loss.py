"""Whenever the power goes: cursors stand as before, and what the index of delayed entries says is true."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import pytest
from magnetar.common.errors import StorageError, TopicNotFound
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedger,
    ManagedLedgerContext,
    delayed_index,
    open_managed_ledger,
)
from magnetar.sim.loop import SimLoop

from tests.simulation.killed import kill
from tests.simulation.managed_ledger_workload import CONFIG, TOPIC
from tests.simulation.power_loss import KEYS, Process, World, cut_everywhere, in_process, simulate

CONFIRMED_S = 0.05

SEEDS = 6


@dataclass(slots=True)
class DelayedWorkload:
    """One topic, one cursor; every entry is delayed, and its own text says until when."""

    seed: int
    times: dict[Position, int] = field(default_factory=dict)
    acked: set[Position] = field(default_factory=set)
    flushed: set[Position] = field(default_factory=set)
    created: bool = False
    written: int = 0
    rolls: int = 0

    def fork(self) -> DelayedWorkload:
        return replace(
            self, times=dict(self.times), acked=set(self.acked), flushed=set(self.flushed), written=0, rolls=0
        )

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        ledger = await self.load(process, create=True)
        await ledger.create_cursor("s", EARLIEST, {})
        self.created = True
        cursor_ledgers = set()
        for step in range(15):
            now = process.clock.wall_ms()
            times = [now + rng.randrange(3_000, 25_000) for _ in range(rng.randrange(1, 6))]
            before = set(self.times)
            ledger.append(Run([b"%d" % each for each in times]), None)
            await asyncio.sleep(CONFIRMED_S)
            delays = ledger.delayed_entries()
            for position in sorted(set(self.times) - before):
                delays.hold(self.times[position], *position)
            delays.settle()
            if rng.random() < 0.5:
                position = rng.choice(sorted(self.times))
                self.acked.add(position)
                ledger.cursors["s"].ack(*position)
            if rng.random() < 0.4:
                await self.flush(ledger)
            await asyncio.sleep(rng.choice((0, 0.01, 1.0, 3.0)))
            self.written += sum(chunk.entry_id >= 0 for chunk in delays.index.chunks())
            cursor_ledgers.add(ledger._head.decode().cursor_ledger.id)
            if step in (5, 10):
                if step == 5:
                    await ledger.close()
                kill(process, ledger)
                ledger = await self.load(process, create=False)
                self.compare(ledger, process.clock.wall_ms())
        self.rolls = len(cursor_ledgers)
        await ledger.close()

    async def run_uncut(self, loop: SimLoop) -> None:
        await in_process(loop, World.new(), self.run)

    async def flush(self, ledger: ManagedLedger) -> None:
        acked = set(self.acked)
        done: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()
        ledger.flush_cursors(done.set_result)
        assert await done is None
        self.flushed |= acked

    async def load(self, process: Process, *, create: bool) -> ManagedLedger:
        store = await process.open_store()
        ctx = ManagedLedgerContext(store, process.metadata, KEYS, process.clock, CONFIG, EntryCache(1 << 20))
        return await open_managed_ledger(ctx, TOPIC, self, create=create, properties={})

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        for run, _ in publishes:
            for number, entry in enumerate(run.entries):
                self.times[Position(run.ledger_id, run.first_entry_id + number)] = int(entry)

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        raise AssertionError("the disk has no errors")

    def on_lost(self, error: StorageError) -> None:
        raise AssertionError("there is one owner")

    def compare(self, ledger: ManagedLedger, now_ms: int) -> None:
        """Compare what a new owner finds with what was promised; that is promised from now on."""
        cursor = ledger.cursors["s"]
        for position in self.flushed:
            assert cursor.is_acked(*position), f"{position} was acknowledged"
        for position in self.times:
            assert position in self.acked or not cursor.is_acked(*position), (
                f"{position} was not acknowledged"
            )
        # Acknowledgements that were not flushed may have gone with the owner that was told of them.
        self.acked = {position for position in self.acked if cursor.is_acked(*position)}
        self.flushed = set(self.acked)
        if ledger.delays is None:
            return
        index = ledger.delays.index
        for ledger_id in index.ledger_ids:
            for entry_id in index.entries_of(ledger_id) or ():
                position = Position(ledger_id, entry_id)
                assert ledger.entries_between(EARLIEST, position), "entries that exist"
                if position in self.times:
                    assert self.times[position] > now_ms, f"{position} is due and still held back"

    async def check(self, process: Process) -> None:
        try:
            ledger = await self.load(process, create=False)
        except TopicNotFound:
            assert not self.created
            return
        if "s" not in ledger.cursors:
            assert not self.created
            return
        self.compare(ledger, process.clock.wall_ms())
        if ledger.delays is None:
            return
        told = Told(process)
        ledger.delays.listen(told)
        known = ledger.delays.index.count
        # The clock of a process begins at the same moment again: what lies ahead may lie further ahead.
        last_ms = max(self.times.values(), default=0) + 26_000
        await asyncio.sleep((last_ms - process.clock.wall_ms()) / 1000)
        assert len(told.due) == known, "each comes"
        for position, at_ms in told.due.items():
            if position in self.times:
                assert 0 <= at_ms - self.times[position] < 1_000, f"{position} came at another time"


class Told:
    """What the index says is due, and when."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.due: dict[Position, int] = {}

    def on_due(self, entries: object) -> None:
        for entry in entries:  # type: ignore[attr-defined]
            assert Position(*entry) not in self.due
            self.due[Position(*entry)] = self.process.clock.wall_ms()

    def on_forgotten(self, entries: object) -> None:
        raise AssertionError("no record is lost")


@pytest.mark.seeds(4, full=8)
def test_the_index_is_true_and_cursors_stand_after_a_power_loss_at_any_moment(
    seed: int,
) -> None:
    workload = DelayedWorkload(seed)
    with patch.multiple(delayed_index, HEAP_ENTRIES_MAX=8, CHUNK_ENTRIES=3):
        report = cut_everywhere(workload, seed, every=3)
    assert report.checks > 50
    assert workload.written, "chunks were on disk"


def test_chunks_move_along_to_further_cursor_ledgers_while_the_workload_runs() -> None:
    workloads = [DelayedWorkload(seed) for seed in range(SEEDS)]
    with patch.multiple(delayed_index, HEAP_ENTRIES_MAX=8, CHUNK_ENTRIES=3):
        for workload in workloads:
            simulate(workload.seed, workload.run_uncut)
    # Each of the three owners begins one; whether one grows beyond its bounds as well depends on the seed.
    assert sum(workload.rolls > 3 for workload in workloads) >= SEEDS // 3
