"""Space comes back: files are rewritten, removed and recycled, under a full disk and beside readers too."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.common.errors import EntryUnreadable
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.segment_log.compaction import DuplicateMismatch, Rewrite
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY
from magnetar.ledger.segment_log.space import CONFLICTS, RECLAIMED_BYTES
from magnetar.ledger.segment_log.syncer import ThreadSyncer
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.simulation.garbage_workload import GARBAGE, GRACE_S
from tests.simulation.power_loss import INSTANCE_ID, KEYS
from tests.unit.ledger.ledger_store_contract import Heard
from tests.unit.ledger.test_garbage_collector import ENTRY, Bench, payload, simulate


def test_space_comes_back_and_the_file_is_written_again() -> None:
    async def act(bench: Bench) -> None:
        doomed = await bench.ledgers(8, entries=12)
        await bench.restart()
        sealed = bench.segment_files()
        for ref in doomed:
            await bench.store.delete(ref)
        await bench.collect()
        spares = [path for path in bench.world.disk.paths() if path.endswith(".spare")]
        assert len(spares) == 1
        assert not set(sealed) & set(bench.segment_files()) - {bench.segment_files()[-1]}
        kept = await bench.ledgers(8, entries=12)
        assert not any(path.endswith(".spare") for path in bench.world.disk.paths())
        await bench.intact(kept, entries=12)
        await bench.restart(outage="kill")
        await bench.intact(kept, entries=12)

    simulate(act)


def test_a_full_disk_is_emptied_by_compaction_without_running_it_full() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(8, entries=8)
        await bench.restart()
        for ref in refs[2:]:
            await bench.store.delete(ref)
        await bench.store.garbage.collect()
        await asyncio.sleep(GRACE_S)
        disk = bench.world.disk
        used = disk.capacity - disk.free_bytes()
        files = bench.segment_files()
        disk.capacity = used + config.reserve_bytes // 2
        await bench.store.garbage.collect()
        assert bench.segment_files() == files, "there was no room for an output"
        disk.capacity = used + config.reserve_bytes // 2 + (100 << 10)
        writer = await bench.store.create(Heard().listener(), properties={})
        writer.append(Run([b"noticed with this group"]))
        await asyncio.sleep(0.02)
        assert bench.store.log.is_full()
        lowest = [disk.free_bytes()]
        disk.on_operation = lambda number, what: lowest.append(disk.free_bytes())
        await bench.store.garbage.collect()
        assert bench.segment_files() != files
        assert min(lowest) >= config.reserve_bytes // 2
        await bench.intact(refs[:2], entries=8)

    config = replace(GARBAGE, free_space_headroom_bytes=256 << 10)
    simulate(act, config)


def test_damage_is_carried_as_damage() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(8)
        await bench.restart()
        [path] = [
            path for path in bench.segment_files() if payload(refs[0], 1) in bench.world.disk.content(path)
        ]
        content = bench.world.disk.content(path)
        body = content.index(payload(refs[0], 1))
        bench.world.disk.flip_bit(path, 8 * body + 3)
        bench.world.disk.flip_bit(path, 8 * (content.index(payload(refs[1], 2)) - 40))  # its record's header
        for ref in refs[2:]:
            await bench.store.delete(ref)
        await bench.collect()
        assert path not in bench.segment_files(), "it was compacted"
        for _ in range(2):
            for ref, lost in ((refs[0], 1), (refs[1], 2)):
                reader = await bench.store.open(ref)
                assert reader.last_confirmed == 3, "no ledger gets shorter"
                for number in range(4):
                    if number == lost:
                        with pytest.raises(EntryUnreadable):
                            await reader.read(number, number, 1)
                    else:
                        [found] = await reader.read(number, number, 1)
                        assert found.entries == [payload(ref, number)]
            await bench.restart()

    simulate(act)


def test_copies_that_differ_raise_an_alarm_and_stay() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(8)
        await bench.restart()
        for ref in refs[2:]:
            await bench.store.delete(ref)

        def differ(self: Rewrite) -> int:
            raise DuplicateMismatch("two records at entry 0")

        before = CONFLICTS._value.get()
        files = bench.segment_files()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Rewrite, "step", differ)
            await bench.collect()
        assert CONFLICTS._value.get() == before + 1
        await bench.collect()
        assert CONFLICTS._value.get() == before + 1, "it is not tried for ever"
        assert files == bench.segment_files()
        await bench.intact(refs[:2])

    simulate(act)


def test_it_all_works_on_a_real_disk_beside_readers(tmp_path: Path) -> None:
    config = replace(GARBAGE, gc_grace_s=0.0, compaction_bytes_per_s=1 << 30, compaction_live_ratio=0.9)

    async def main() -> None:
        pool = ThreadPool(2, "test-log")
        metadata = SimMetadataStore(SimMetadataServer(), random.Random(1))

        async def open_store() -> LocalLedgerStore:
            return await open_local_store(
                PosixDisk(tmp_path),
                metadata,
                KEYS,
                instance_id=INSTANCE_ID,
                pool=pool,
                syncer=ThreadSyncer(asyncio.get_running_loop()),
                clock=SystemClock(),
                rng=random.Random(),
                config=config,
            )

        async def entries(store: LocalLedgerStore, ref: LedgerRef) -> list[bytes]:
            reader = await store.open(ref)
            found: list[bytes] = []
            while len(found) <= reader.last_confirmed:
                for part in await reader.read(len(found), reader.last_confirmed, 4 * ENTRY):
                    found += part.entries
            return found

        store = await open_store()
        kept: list[LedgerRef] = []
        for _ in range(4):
            writers = [await store.create(Heard().listener(), properties={}) for _ in range(8)]
            for number in range(20):
                for writer in writers:
                    writer.append(Run([payload(writer.ref, number)]))
                await asyncio.sleep(0)
            refs = [(await writer.close()).ref for writer in writers]
            for ref in refs[2:]:
                await store.delete(ref)
            kept += refs[:2]
            collecting = asyncio.ensure_future(store.garbage.collect())
            while not collecting.done():
                for ref in kept:
                    assert await entries(store, ref) == [payload(ref, number) for number in range(20)]
            await collecting
        assert RECLAIMED_BYTES._value.get() > 0
        await store.close()
        names = sorted(path.name for path in (tmp_path / SEGMENTS_DIRECTORY).iterdir())
        assert not any(name.endswith(".compact") for name in names)
        store = await open_store()
        for ref in kept:
            assert await entries(store, ref) == [payload(ref, number) for number in range(20)]
        await store.close()
        pool.close()

    asyncio.run(main())
