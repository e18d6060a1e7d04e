"""A disk that came back older, or with files missing, is noticed, and nothing that it lost is denied."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from magnetar.bookie.doubt_note import DOUBT
from magnetar.common.errors import LogFailed
from magnetar.common.metadata.store import ANY_VERSION, Put
from magnetar.common.metadata.values import BookieMark, Counter, LedgerMetadata, decode, encode
from magnetar.ledger.bookie_protocol.bookie_pb2 import ENTRY_UNKNOWN, LOG_FAILED, NO_SUCH_ENTRY, OK
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.inventory import INVENTORY
from magnetar.ledger.segment_log.segment import SEGMENTS_DIRECTORY
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimCrash

from tests.simulation.power_loss import KEYS, SMALL_SEGMENTS
from tests.unit.bookie.core_harness import A, B, Bench, on_a_bookie

NEW = LedgerRef(9, 0x9)
INTERVAL_S = 1.0
"""Of raising the mark, by default."""


def mark_of(bench: Bench) -> BookieMark:
    found = bench.server.get(KEYS.bookie_mark(bench.bookie_id))
    assert found is not None
    return decode(BookieMark, found.value)


async def open_and_close(bench: Bench) -> None:
    await bench.open()
    await bench.core.close()


def segment_files(bench: Bench) -> list[str]:
    return [path for path in bench.disk.paths() if path.endswith(".seg")]


async def fill(bench: Bench, ref: LedgerRef, entries: int) -> None:
    """Enough for several segments."""
    for number in range(entries):
        assert (await bench.appended(ref, number, [bytes([number]) * 4000])).code == OK


async def assert_in_doubt(bench: Bench, first: int, reason: str) -> None:
    """What the bookie confirmed of ledger A is not denied, and the ledger takes nothing from its writer."""
    assert (await bench.read(A, first, first))[1].code == ENTRY_UNKNOWN
    assert (await bench.appended(A, first, [b"an old writer's"])).code == LOG_FAILED
    mark = mark_of(bench)
    assert reason in mark.doubt
    assert mark.doubt_ms


# --- an older image ---


def test_an_image_of_the_same_run_without_a_confirmed_entry_raises_doubt() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"zero"])
        image = bench.disk.kill()
        await bench.appended(A, 1, [b"one"])
        await asyncio.sleep(2 * INTERVAL_S)
        await bench.put_back(image)
        await assert_in_doubt(bench, 1, "an older copy")

    on_a_bookie(act)


def test_an_image_without_a_fence_raises_doubt_however_young_it_is() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"zero"])
        image = bench.disk.kill()
        assert (await bench.fence(A)).code == OK
        await bench.put_back(image)
        assert (await bench.appended(A, 1, [b"an old writer's"], lac=0)).code == LOG_FAILED

    on_a_bookie(act)


def test_an_image_from_before_a_stop_in_good_order_raises_doubt_however_young_it_is() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        image = bench.disk.kill()
        await bench.appended(A, 0, [b"zero"])
        await bench.core.close()
        await bench.put_back(image)
        await assert_in_doubt(bench, 0, "an older copy")

    on_a_bookie(act)


def test_new_entries_of_a_restored_image_do_not_replace_lost_ones() -> None:
    """The older copy writes as much as it lacks, and more; then it comes back a second time."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        image = bench.disk.kill()
        again = bench.disk.kill()
        for number in range(5):
            await bench.appended(B, number, [b"lost"])
        await asyncio.sleep(2 * INTERVAL_S)
        before = mark_of(bench).group_sequence
        await bench.put_back(image)
        for number in range(9):
            await bench.appended(NEW, number, [b"new"])
        await asyncio.sleep(2 * INTERVAL_S)
        assert mark_of(bench).group_sequence > before + 8
        await bench.put_back(again)
        assert DOUBT not in bench.disk.listdir("")
        assert (await bench.read(A, 0, 0))[1].code == ENTRY_UNKNOWN

    on_a_bookie(act)


# --- missing files ---


@pytest.mark.parametrize("stop", ["close", "kill"])
def test_each_missing_segment_file_raises_doubt(stop: str) -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await fill(bench, A, 12)
        if stop == "close":
            await bench.core.close()
        files = segment_files(bench)
        assert len(files) >= 3
        for path in files:
            image = bench.disk.kill()
            image.unlink(path)
            image.sync_dir(SEGMENTS_DIRECTORY)
            other = Bench(bench.loop, image, bench.server.fork(), log_config=bench.log_config)
            await other.open()
            assert (await other.state(A)).limbo, path
            assert "missing" in mark_of(other).doubt
            assert (await other.read(A, 40, 40))[1].code == ENTRY_UNKNOWN
            await other.core.close()

    on_a_bookie(act)


def lose_the_segments(disk: SimDisk) -> None:
    for path in disk.paths():
        if path.startswith(SEGMENTS_DIRECTORY):
            disk.unlink(path)
    disk.sync_dir(SEGMENTS_DIRECTORY)


def lose_the_list(disk: SimDisk) -> None:
    disk.unlink(INVENTORY)
    disk.sync_dir("")


def damage_the_list(disk: SimDisk) -> None:
    disk.flip_bit(INVENTORY, 8 * 20)


@pytest.mark.parametrize("lose", [lose_the_segments, lose_the_list, damage_the_list])
def test_lost_files_of_the_directory_raise_doubt(lose: Callable[[SimDisk], None]) -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"zero"])
        await bench.core.close()
        image = bench.disk.kill()
        lose(image)
        await bench.put_back(image)
        await assert_in_doubt(bench, 1, "")
        assert INVENTORY in bench.disk.listdir("")

    on_a_bookie(act)


# --- what is no reason for doubt ---


def test_a_directory_that_kept_no_list_yet_is_taken_as_it_is() -> None:
    """As the release before left it: neither a list nor a mark."""

    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await fill(bench, A, 5)
        await bench.core.close()
        image = bench.disk.kill()
        lose_the_list(image)
        await bench.metadata.delete(KEYS.bookie_mark(bench.bookie_id))
        await bench.put_back(image)
        assert not (await bench.state(A)).limbo
        assert INVENTORY in bench.disk.listdir("")

    on_a_bookie(act)


def test_a_log_whose_every_entry_was_deleted_is_no_older_one() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await fill(bench, B, 12)
        await bench.restart("close")
        log = bench.core.log
        await log.space._rewrite(log.finished_segments(), {B})
        assert not log.finished_segments()
        for outage in ("kill", "crash", "close", "close"):
            await bench.restart(outage)
            assert not mark_of(bench).doubt
        await bench.appended(A, 0, [b"zero"])
        assert not (await bench.state(A)).limbo

    on_a_bookie(act)


@pytest.mark.parametrize("outage", ["kill", "crash", "close"])
def test_no_stop_at_any_operation_is_taken_for_an_older_disk(outage: str) -> None:
    """Segments come and go, files are recycled and compacted; the stop comes anywhere."""

    async def act(bench: Bench) -> None:
        rng = bench.loop.rng
        await bench.put_metadata(A)
        for round_ in range(8):
            for number in range(rng.randrange(1, 8)):
                bench.append(A, 10 * round_ + number, [bytes(rng.randrange(5000))])
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice((0.001, 0.1, 1.5)))
            if rng.random() < 0.3:
                finished = bench.core.log.finished_segments()
                if finished:
                    await bench.core.log.space._rewrite(finished[:2], set())
            await bench.restart(outage, rng)
            doubt = mark_of(bench).doubt
            assert "missing" not in doubt, doubt
            assert "older" not in doubt, doubt

    for seed in range(5):
        on_a_bookie(act, seed)


def test_a_start_that_was_cut_short_at_any_step_doubts_no_sound_disk() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await fill(bench, A, 12)
        before = bench.disk.operations
        await bench.restart("kill")
        operations = bench.disk.operations
        assert before
        for at in range(1, operations, 3):
            image = bench.disk.kill()
            other = Bench(bench.loop, image, bench.server.fork(), log_config=bench.log_config)
            image.faults.crash_at = at
            with pytest.raises(SimCrash):
                await open_and_close(other)
            other.disk = image.crash(bench.loop.rng)
            await other.open()
            assert not (await other.state(A)).limbo, (at, mark_of(other).doubt)
            await other.core.close()

    on_a_bookie(act)


# --- fences that may be lost ---


async def emptied(bench: Bench) -> None:
    dead, bench.disk = bench.disk, SimDisk()
    dead.crashed = True
    bench.core.mode.stop()
    bench.core.garbage._stop.set()
    bench.core.garbage._wake.set()
    bench.core.high_water.stop()
    bench.dead.append(bench.core)
    await bench.open(accept_empty_directory=True)


async def older(bench: Bench) -> None:
    image = bench.disk.kill()
    assert (await bench.fence(A)).code == OK
    await bench.put_back(image)


@pytest.mark.parametrize("come_back", [emptied, older])
@pytest.mark.parametrize("state", [LedgerMetadata.OPEN, LedgerMetadata.IN_RECOVERY, LedgerMetadata.CLOSED])
def test_no_ledger_that_may_have_been_fenced_takes_appends_of_its_writer(
    come_back: Callable[[Bench], Awaitable[None]], state: LedgerMetadata.State.ValueType
) -> None:
    async def act(bench: Bench) -> None:
        bench.server.commit([Put(KEYS.ledger_id_counter, encode(Counter(next=NEW.id)), ANY_VERSION)])
        await bench.put_metadata(A, state, last_entry_id=0)
        await bench.appended(A, 0, [b"zero"])
        await bench.fence(B)  # metadata does not name this bookie, or no longer
        await come_back(bench)
        for outage in ("", "kill", "crash", "close"):
            if outage:
                await bench.restart(outage)
            for ref in (A, B):
                assert (await bench.appended(ref, 1, [b"an old writer's"], lac=0)).code == LOG_FAILED
                assert (await bench.appended(ref, 1, [b"a recovery's"], recovery=True)).code == OK
        assert (await bench.appended(NEW, 0, [b"a ledger made since"])).code == OK

    on_a_bookie(act)


# --- the mark itself ---


def test_the_mark_rises_at_most_once_in_an_interval_and_fences_share_a_raise() -> None:
    async def act(bench: Bench) -> None:
        await asyncio.sleep(INTERVAL_S)
        before = bench.server.revision
        for number in range(300):
            await bench.appended(A, number, [b"x"])
            await asyncio.sleep(0.01)
        assert bench.server.revision - before <= 8
        before = bench.server.revision
        await asyncio.gather(*(bench.fence(LedgerRef(20 + number, 1)) for number in range(100)))
        assert bench.server.revision - before <= 3
        await asyncio.sleep(3 * INTERVAL_S)
        before = bench.server.revision
        await asyncio.sleep(20 * INTERVAL_S)
        assert bench.server.revision == before, "an idle bookie writes nothing"

    on_a_bookie(act, log_config=replace(SMALL_SEGMENTS, segment_size_bytes=8 << 20))


def test_a_fence_waits_for_metadata_and_is_refused_when_another_process_is_the_bookie() -> None:
    async def act(bench: Bench) -> None:
        bench.metadata.faults.unreachable = True
        fencing = asyncio.ensure_future(bench.fence(A))
        await asyncio.sleep(3)
        assert not fencing.done()
        assert (await bench.appended(B, 0, [b"entries do not wait"])).code == OK
        bench.metadata.faults.unreachable = False
        assert (await fencing).code == OK
        other = mark_of(bench)
        other.generation += 1
        bench.server.commit([Put(KEYS.bookie_mark(bench.bookie_id), encode(other), ANY_VERSION)])
        assert (await bench.fence(B)).code == LOG_FAILED
        assert mark_of(bench) == other
        with pytest.raises(LogFailed):
            await bench.core.high_water.covered()

    on_a_bookie(act)


def test_a_doubt_is_named_in_metadata_until_everything_was_compared() -> None:
    async def act(bench: Bench) -> None:
        await bench.put_metadata(A)
        await bench.appended(A, 0, [b"zero"])
        await older(bench)
        await bench.restart("kill")
        assert "an older copy" in mark_of(bench).doubt
        await bench.clear_limbo(A)
        await asyncio.sleep(30)
        assert mark_of(bench).doubt, "closed ledgers were not compared yet"
        await bench.core.data_check.done()
        await asyncio.sleep(30)
        assert not mark_of(bench).doubt
        assert (await bench.read(A, 5, 5))[1].code == NO_SUCH_ENTRY

    on_a_bookie(act)
