"""Whenever the power goes, the snapshot and the entries after it tell of all that was confirmed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

import pytest
from magnetar.common.errors import StorageError, TopicNotFound
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    DeduplicationSnapshot,
    EntryCache,
    ManagedLedger,
    ManagedLedgerContext,
    ProducerSequence,
    open_managed_ledger,
)

from tests.simulation.killed import kill
from tests.simulation.managed_ledger_workload import CONFIG, TOPIC
from tests.simulation.power_loss import KEYS, Process, cut_everywhere


@dataclass(slots=True)
class DeduplicationWorkload:
    """One topic without subscriptions, so that nothing but the snapshot keeps its ledgers."""

    seed: int
    kept: bool = False
    published: dict[str, int] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    position: Position = EARLIEST
    trimmed: int = 0

    def fork(self) -> DeduplicationWorkload:
        return replace(self, published=dict(self.published), confirmed=dict(self.confirmed))

    def snapshot(self) -> DeduplicationSnapshot:
        producers = {name: ProducerSequence(number, 0) for name, number in self.confirmed.items()}
        return DeduplicationSnapshot(self.position, producers)

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        ledger = await self.load(process, create=True)
        await ledger.deduplication.keep(self.snapshot, ledger.flush_cursors)
        self.kept = True
        for step in range(40):
            name = rng.choice("abc")
            count = rng.randrange(1, 5)
            first = self.published.get(name, 0) + 1
            self.published[name] = first + count - 1
            ledger.append(Run([b"%s %d" % (name.encode(), first + n) for n in range(count)]), None)
            if rng.random() < 0.3:
                ledger.deduplication.save()
            await asyncio.sleep(rng.choice((0, 0.001, 0.01, 0.03)))
            if step == 20:
                kill(process, ledger)
                ledger = await self.load(process, create=False)
                await self.recover(ledger)
                await ledger.deduplication.keep(self.snapshot, ledger.flush_cursors)
            self.trimmed = max(self.trimmed, ledger._spans.first_base)
        await ledger.close()

    async def load(self, process: Process, *, create: bool) -> ManagedLedger:
        store = await process.open_store()
        ctx = ManagedLedgerContext(store, process.metadata, KEYS, process.clock, CONFIG, EntryCache(1 << 20))
        return await open_managed_ledger(ctx, TOPIC, self, create=create, properties={})

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        for run, _ in publishes:
            for entry in run.entries:
                self.count(self.confirmed, entry)
            self.position = Position(run.ledger_id, run.last_entry_id)

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        raise AssertionError("the disk has no errors")

    def on_lost(self, error: StorageError) -> None:
        raise AssertionError("there is one owner")

    @staticmethod
    def count(counts: dict[str, int], entry: bytes) -> None:
        name, number = entry.decode().split()
        counts[name] = max(counts.get(name, 0), int(number))

    async def recover(self, ledger: ManagedLedger) -> None:
        """Compare what a broker would know with what was confirmed; that is promised from now on."""
        loaded = ledger.deduplication.loaded
        if loaded is None:
            assert not self.kept, "the state is gone"
            return
        known = {name: producer.sequence_id for name, producer in loaded.producers.items()}
        at = ledger.next_position(loaded.position)
        while at is not None:
            result = await ledger.read(at, 50, 1_000)
            for run in result.runs:
                for entry in run.entries:
                    self.count(known, entry)
            at = ledger.next_position(Position(result.next.ledger_id, result.next.entry_id - 1))
        for name, number in self.confirmed.items():
            assert number <= known.get(name, 0), f"{name} {number} was confirmed and is forgotten"
        for name, number in known.items():
            assert number <= self.published[name], f"{name} {number} was never published"
        self.confirmed, self.position = known, ledger.last_confirmed

    async def check(self, process: Process) -> None:
        try:
            ledger = await self.load(process, create=False)
        except TopicNotFound:
            assert not self.kept, "the topic is gone"
            return
        await self.recover(ledger)


@pytest.mark.seeds(1, full=2)
def test_confirmed_entries_are_known_after_a_power_loss_at_any_write_sync_or_commit(seed: int) -> None:
    workload = DeduplicationWorkload(seed)
    report = cut_everywhere(workload, seed)
    assert report.checks > 100
    assert workload.trimmed, "ledgers went while it ran"
