"""The local ledger store: the contract of every store, and what is its own."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import Backpressure, DataCorruption, LedgerFenced, LogFailed, LogFull
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.data_directory import WrongDataDirectory
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.local_store import LocalLedgerStore, open_local_store
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.syncer import ThreadSyncer
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.simulation.power_loss import INSTANCE_ID, KEYS, SMALL_SEGMENTS, Process, World
from tests.unit.ledger.ledger_store_contract import PROMISES, Heard, Promise, confirmed, create, entries


class SimulatedFixture:
    """The store on a simulated disk, restarted by killing its process."""

    def __init__(self, loop: SimLoop, config: SegmentLogConfig = SMALL_SEGMENTS) -> None:
        self.world = World.new()
        self.process = Process(loop, self.world, config)
        self.metadata = self.process.metadata
        self.store: LocalLedgerStore

    async def start(self) -> SimulatedFixture:
        self.store = await self.process.open_store()
        return self

    async def kill_and_restart(self) -> None:
        self.world.kill()
        self.store = await self.process.open_store()


def run_promise(promise: Promise, seed: int) -> None:
    loop = SimLoop(seed, time_max_s=100)

    async def main() -> None:
        await promise(await SimulatedFixture(loop).start())

    run(loop, main())


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_contract_under_simulation(promise: Promise) -> None:
    for seed in range(5):
        run_promise(promise, seed)


class RealFixture:
    """The store on a directory, restarted by closing it (a process is not killed in here)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pool = ThreadPool(2, "test-log")
        self.metadata = SimMetadataStore(SimMetadataServer(), random.Random(1))
        self.store: LocalLedgerStore

    async def start(self) -> RealFixture:
        self.store = await open_local_store(
            PosixDisk(self.directory),
            self.metadata,
            KEYS,
            instance_id=INSTANCE_ID,
            pool=self.pool,
            syncer=ThreadSyncer(asyncio.get_running_loop()),
            clock=SystemClock(),
            rng=random.Random(),
            config=SMALL_SEGMENTS,
        )
        return self

    async def kill_and_restart(self) -> None:
        await self.store.close()
        await self.start()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_contract_on_a_real_disk(promise: Promise, tmp_path: Path) -> None:
    async def main() -> None:
        fixture = await RealFixture(tmp_path).start()
        try:
            await promise(fixture)
        finally:
            await fixture.store.close()
            fixture.pool.close()

    asyncio.run(main())


def simulate(act: Any, config: SegmentLogConfig = SMALL_SEGMENTS) -> None:
    loop = SimLoop(1, time_max_s=1000)

    async def main() -> None:
        await act(await SimulatedFixture(loop, config).start())

    run(loop, main())


def test_a_data_directory_serves_one_store_at_a_time() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        with pytest.raises(WrongDataDirectory, match="LOCK"):
            await fixture.process.open_store()
        await fixture.store.close()
        await (await fixture.process.open_store()).close()

    simulate(act)


def test_a_real_data_directory_is_locked_too(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    held = disk.lock("LOCK")
    with pytest.raises(BlockingIOError):
        PosixDisk(tmp_path).lock("LOCK")
    held.close()
    disk.lock("LOCK").close()


def test_a_data_directory_of_another_instance_stops_the_start() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        await fixture.store.close()
        fixture.world.disk.flip_bit("cookie", 8 * 18)
        with pytest.raises(Exception, match="damaged"):
            await fixture.process.open_store()
        fixture.world.disk.flip_bit("cookie", 8 * 18)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tests.simulation.power_loss.INSTANCE_ID", b"somebody else's!")
            with pytest.raises(WrongDataDirectory, match="belongs to instance"):
                await fixture.process.open_store()

    simulate(act)


def test_a_cookie_that_the_disk_cannot_read_stops_the_start_and_says_what_to_do() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        await fixture.store.close()
        fixture.world.disk.spoil("cookie", 0)
        with pytest.raises(DataCorruption, match=r"cannot read cookie .*: put the file back"):
            await fixture.process.open_store()

    simulate(act)


def test_segments_without_a_cookie_stop_the_start() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        await fixture.store.close()
        writer_disk = fixture.world.disk
        writer_disk.unlink("cookie")
        writer_disk.open("segments/0000000000000009.seg", create=True)
        with pytest.raises(WrongDataDirectory, match="no cookie"):
            await fixture.process.open_store()

    simulate(act)


def test_a_failed_sync_fails_its_ledgers_once_and_others_go_on() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        bad, good = Heard(), Heard()
        hit = await create(fixture, bad)  # type: ignore[arg-type]
        spared = await create(fixture, good)  # type: ignore[arg-type]
        hit.append(Run([b"safe"]))
        await confirmed(hit, 0)
        await asyncio.sleep(0.5)  # zero-filling is done
        disk = fixture.world.disk
        disk.faults.sync_errors = set(range(disk.operations + 1, disk.operations + 3))
        hit.append(Run([b"lost"]))
        await asyncio.sleep(0.0001)
        spared.append(Run([b"later"]))
        await confirmed(spared, 0)
        assert [(type(error), last) for error, last in bad.failed] == [(LogFailed, 0)]
        assert not good.failed
        with pytest.raises(LogFailed):
            hit.append(Run([b"x"]))
        closed = await hit.close()
        assert closed.last_entry_id == 0
        assert await entries(await fixture.store.open(hit.ref), 0, 0) == [b"safe"]

    simulate(act)


def test_an_unusable_directory_fails_appends_instead_of_holding_them_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(fixture: SimulatedFixture) -> None:
        heard = Heard()
        writer = await create(fixture, heard)  # type: ignore[arg-type]

        def gone() -> int:
            raise FileNotFoundError("the directory is gone")

        with monkeypatch.context() as patch:
            patch.setattr(fixture.world.disk, "free_bytes", gone)
            writer.append(Run([b"a"]))
            await asyncio.sleep(0.1)
            assert [type(error) for error, _ in heard.failed] == [LogFailed]
        other = await create(fixture)  # type: ignore[arg-type]
        other.append(Run([b"b"]))
        await confirmed(other, 0)

    simulate(act)


def test_a_full_disk_refuses_appends_before_an_id_is_given_and_resumes_by_itself() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        writer = await create(fixture)  # type: ignore[arg-type]
        writer.append(Run([b"a"]))
        await confirmed(writer, 0)
        fixture.world.disk.capacity = 0
        run = Run([b"b"])
        writer.append(run)  # the group that finds out
        await confirmed(writer, 1)
        refused = Run([b"c"])
        with pytest.raises(LogFull):
            writer.append(refused)
        assert (refused.ledger_id, refused.first_entry_id) == (-1, -1)
        assert await entries(await fixture.store.open(writer.ref), 0, 1) == [b"a", b"b"]
        fixture.world.disk.capacity = 1 << 40
        with pytest.raises(LogFull):
            writer.append(refused)
        await asyncio.sleep(0.2)
        assert writer.append(refused) == 2
        await confirmed(writer, 2)

    simulate(act)


@pytest.mark.parametrize("kind", ["cursors", "transactions"])
def test_records_are_written_on_a_full_disk_into_half_of_the_reserve(kind: str) -> None:
    """Consuming is what gives space back: it must not wait for space."""
    reserve = SMALL_SEGMENTS.reserve_bytes

    async def act(fixture: SimulatedFixture) -> None:
        disk = fixture.world.disk
        listener = Heard().listener()
        topic = await create(fixture)  # type: ignore[arg-type]
        cursors = await fixture.store.create(listener, properties={"kind": kind})
        used = disk.capacity - disk.free_bytes()
        disk.capacity = used + reserve * 3 // 4
        topic.append(Run([b"a"]))  # the group that finds out
        await confirmed(topic, 0)
        with pytest.raises(LogFull):
            topic.append(Run([b"b"]))
        cursors.append(Run([b"acknowledged"]))
        await confirmed(cursors, 0)
        disk.capacity = used + reserve // 3
        with pytest.raises(LogFull):
            cursors.append(Run([b"and so on"]))

    simulate(act)


def test_bytes_waiting_for_their_sync_are_bounded() -> None:
    config = SegmentLogConfig(segment_size_bytes=1 << 20, pending_bytes_max=1000, free_space_headroom_bytes=0)

    async def act(fixture: SimulatedFixture) -> None:
        writer = await create(fixture)  # type: ignore[arg-type]
        assert writer.append(Run([bytes(5000)])) == 0, "a run larger than the budget passes alone"
        with pytest.raises(Backpressure):
            writer.append(Run([b"x"]))
        await confirmed(writer, 0)
        assert writer.append(Run([b"x"])) == 1
        await confirmed(writer, 1)

    simulate(act, config)


def test_a_mark_outlives_the_process() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        ref = LedgerRef(5, 6)
        await fixture.store.log.fence(ref)
        await fixture.store.log.set_limbo(ref)
        for _ in range(2):
            await fixture.kill_and_restart()
            known = fixture.store.log.ledger(ref)
            assert (known.fenced, known.limbo) == (True, True)
        await fixture.store.close()
        fixture.store = await fixture.process.open_store()
        assert fixture.store.log.ledger(ref).fenced

    simulate(act)


def test_a_clean_stop_leaves_sealed_segments_only() -> None:
    async def act(fixture: SimulatedFixture) -> None:
        writer = await create(fixture)  # type: ignore[arg-type]
        for _ in range(40):
            writer.append(Run([bytes(300)] * 20))
            await asyncio.sleep(0.002)
        await confirmed(writer, 799)
        await fixture.store.close()
        before = fixture.world.disk.paths()
        fixture.store = await fixture.process.open_store()
        assert len(await entries(await fixture.store.open(writer.ref), 0, 799)) == 800
        await fixture.store.close()
        assert fixture.world.disk.paths() == before, "an idle start and stop leaves nothing behind"

    simulate(act)


def fence_refuses_at_once(seed: int) -> None:
    async def act(fixture: SimulatedFixture) -> None:
        writer = await create(fixture)  # type: ignore[arg-type]
        writer.append(Run([b"before"]))
        log = fixture.store.log
        fence = asyncio.ensure_future(log.fence(writer.ref))
        await asyncio.sleep(0)
        with pytest.raises(LedgerFenced):
            log.append(log.ledger(writer.ref), Run([b"after"], first_entry_id=1), 0)
        assert not fence.done()
        await fence
        assert log.ledger(writer.ref).last_entry_id == 0, "what was appended before is settled with it"

    simulate(act)


def test_a_fence_refuses_appends_in_memory_before_it_is_durable() -> None:
    fence_refuses_at_once(0)


def what_a_recovery_saw_outlives_a_power_loss(seed: int) -> None:
    """A group's sync fails, the cache still shows it, others follow; the process dies, then the power goes.

    The whole segment is filled at once: a later fill would hear of the error too and hide what is tested.
    """
    config = dataclasses.replace(SMALL_SEGMENTS, fill_ahead_bytes=SMALL_SEGMENTS.segment_size_bytes)

    async def act(fixture: SimulatedFixture) -> None:
        unlucky = await create(fixture)  # type: ignore[arg-type]
        lucky = await create(fixture)  # type: ignore[arg-type]
        unlucky.append(Run([b"safe"]))
        await confirmed(unlucky, 0)
        disk = fixture.world.disk
        disk.faults.sync_errors = set(range(disk.operations + 1, disk.operations + 3))
        unlucky.append(Run([b"in the cache only"]))
        for entry in range(4):
            await asyncio.sleep(0.01)
            lucky.append(Run([b"later"]))
            await confirmed(lucky, entry)
        await fixture.kill_and_restart()
        _, before = await fixture.store.recover(unlucky.ref)
        fixture.world.disk = fixture.world.disk.crash(random.Random(seed))
        fixture.store = await fixture.process.open_store()
        reader, after = await fixture.store.recover(unlucky.ref)
        assert before == after
        assert len(await entries(reader, 0, after.last_entry_id)) == after.last_entry_id + 1

    simulate(act, config)


def test_entries_seen_by_a_recovery_survive_a_power_loss() -> None:
    for seed in range(5):
        what_a_recovery_saw_outlives_a_power_loss(seed)
