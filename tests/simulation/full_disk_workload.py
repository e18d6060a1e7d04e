"""A workload on a disk that others fill at random moments: real ENOSPC inside groups, fills, compaction."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

from magnetar.common.errors import LogFull
from magnetar.ledger.ledger_store import LedgerWriter, Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from magnetar.ledger.segment_log.config import SegmentLogConfig

from tests.simulation.garbage_workload import GARBAGE, GarbageWorkload
from tests.simulation.ledger_workload import random_run
from tests.simulation.power_loss import Process

ROOM: int = 1 << 40

FULL_DISK = replace(
    GARBAGE,
    fill_ahead_bytes=BLOCK,  # groups get ahead of the fill, so that they meet the full disk themselves
    free_space_headroom_bytes=32 << 10,
)


@dataclass(slots=True)
class FullDiskWorkload(GarbageWorkload):
    """Promises those of `GarbageWorkload`, and that appends come back with the space."""

    steps: int = 40
    config: SegmentLogConfig = FULL_DISK
    sync_error_at: frozenset[int] = frozenset({1 << 60})  # groups fail here, by the lack of space
    refused: int = 0

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        store = await self.open_store(process)
        writers = [await self.create(store) for _ in range(6)]
        for step in range(self.steps):
            disk = process.world.disk
            if step % 5 == 2:
                used = disk.capacity - disk.free_bytes()
                disk.capacity = used + rng.choice((0, 5_000, 20_000, 70_000, 130_000))
            for _ in range(rng.randrange(2, 8)):
                self.append(rng.choice(writers), random_run(rng))
                await asyncio.sleep(rng.choice((0, 0.001, 0.004)))
            if step % 10 == 3:
                await self.collect(store)
            if step % 5 == 4:
                disk.capacity = ROOM
                await asyncio.sleep(1.5)  # a failed attempt to make a segment is repeated after a second
                writers = await self.replace_failed(store, writers, rng)
                await self.resumes(writers[0], rng)
                await self.delete_one(store, rng)
            if step == self.steps // 2:
                store, writers = await self.restart(process, store, clean=rng.random() < 0.5)
        process.world.disk.capacity = ROOM
        await asyncio.sleep(3.0)
        await self.collect(store)
        self.check_space(store)
        await store.close()

    async def replace_failed(
        self, store: LocalLedgerStore, writers: list[LedgerWriter], rng: random.Random
    ) -> list[LedgerWriter]:
        failed = [each for each in writers if self.ledgers[each.ref.id].failed or rng.random() < 0.3]
        kept = [each for each in writers if each not in failed]
        for writer in failed:
            promises = self.ledgers[writer.ref.id]
            promises.closed = (await writer.close()).last_entry_id
            kept.append(await self.create(store))
        return kept

    async def resumes(self, writer: LedgerWriter, rng: random.Random) -> None:
        """There is room: an append is taken and confirmed."""
        promises = self.ledgers[writer.ref.id]
        assert self.append(writer, random_run(rng)), "appends resume by themselves"
        await asyncio.sleep(0.1)
        assert promises.confirmed + 1 == len(promises.appended)

    def append(self, writer: LedgerWriter, run: Run) -> bool:
        try:
            return super(FullDiskWorkload, self).append(writer, run)
        except LogFull:
            self.refused += 1
            return False

    async def check(self, process: Process) -> None:
        process.world.disk.capacity = ROOM
        await super(FullDiskWorkload, self).check(process)
