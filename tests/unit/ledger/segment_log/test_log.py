"""The running log's smaller promises: what a seal contains, when a segment is over, what a scan believes.

They are functions of a seed, since the mutation tests run them as well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from magnetar.common.errors import LogFailed
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.segment_log import segment
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.recovery import TAIL_CUTS, rebuild_indexes, recover_log
from magnetar.ledger.segment_log.scan import Window, scan_groups
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimLoop, run

from tests.simulation.power_loss import SMALL_SEGMENTS, Process, World
from tests.unit.ledger.ledger_store_contract import Heard
from tests.unit.ledger.segment_log.test_recovery import Writer, index_of, new_disk, record


def on_a_store(
    seed: int, act: Callable[[Process, LocalLedgerStore], Awaitable[None]], config: SegmentLogConfig
) -> None:
    loop = SimLoop(seed, time_max_s=100)

    async def main() -> None:
        process = Process(loop, World.new(), config)
        await act(process, await process.open_store())

    run(loop, main())


def a_sealed_segment_ends_where_it_was_durable(seed: int) -> None:
    """After a failed sync the group in question is not part of the segment, whoever reads it."""

    async def act(process: Process, store: LocalLedgerStore) -> None:
        heard = Heard()
        writer = await store.create(heard.listener(), properties={})
        writer.append(Run([b"confirmed"]))
        await asyncio.sleep(0.02)
        disk = process.world.disk
        disk.faults.sync_errors = {disk.operations + 2}
        writer.append(Run([b"unknown"]))
        await asyncio.sleep(0.05)
        assert len(heard.failed) == 1
        [sealed] = store.log.finished_segments()
        assert sealed.sealed
        by_scan = rebuild_indexes(sealed)[writer.ref]
        assert by_scan.last_entry_id == sealed.lines[writer.ref].last_entry_id == 0
        assert b"unknown" not in disk.content(sealed.path)

    on_a_store(seed, act, SMALL_SEGMENTS)


def a_segment_holds_so_many_entries(seed: int) -> None:
    """It is sealed after segment_entries_max; a group may exceed that once."""

    async def act(process: Process, store: LocalLedgerStore) -> None:
        writer = await store.create(Heard().listener(), properties={})
        for _ in range(60):
            writer.append(Run([b"x"]))
            await asyncio.sleep(0.01)
        segments = store.log.finished_segments()
        assert len(segments) >= 5
        assert all(each.lines[writer.ref].runs <= 10 for each in segments)

    on_a_store(seed, act, replace(SMALL_SEGMENTS, segment_entries_max=10))


def a_clean_stop_leaves_nothing_to_repair(seed: int) -> None:
    """Not even when the power goes right after it: every segment has its footer."""

    async def act(process: Process, store: LocalLedgerStore) -> None:
        writer = await store.create(Heard().listener(), properties={})
        for _ in range(5):
            writer.append(Run([b"entry"]))
            await asyncio.sleep(0.01)
        await store.close()
        for outcome in range(10):
            disk = process.world.disk.crash(random.Random(seed * 10 + outcome))
            before = [path for path in disk.paths() if path.endswith(".seg")]
            recovered = recover_log(disk, SMALL_SEGMENTS, random.Random(1), 0)
            assert [each.path for each in recovered.sealed] == before
            for path in before:
                assert disk.content(path) == process.world.disk.content(path), "sealed anew"

    on_a_store(seed, act, SMALL_SEGMENTS)


def nothing_is_taken_or_written_once_the_log_closes(seed: int) -> None:
    """A record behind the footer of the last segment would be confirmed, and gone at the next start."""

    async def act(process: Process, store: LocalLedgerStore) -> None:
        writer = await store.create(Heard().listener(), properties={})
        entries = 1 + seed % 3
        for number in range(entries):
            writer.append(Run([b"entry %d" % number]))
        if seed:
            await asyncio.sleep(0.5)
        store.log._chain._spawn(asyncio.sleep(0.001))  # work under way that closing waits for
        closing = asyncio.ensure_future(store.log.close())
        if seed:
            store.log.group_commit._idle()  # the second without an append is over at this moment
        await asyncio.sleep(0)
        for _ in range(20):
            with pytest.raises(LogFailed, match="the log is closing"):
                writer.append(Run([b"late"]))
            with pytest.raises(LogFailed, match="the log is closing"):
                await store.log.fence(LedgerRef(writer.ref.id + 1, 1))
            store.log.group_commit.resumed()
            assert not (seed and store.log.group_commit.in_flight), "a group would lie where the footer does"
            await asyncio.sleep(0.0001)
        await closing
        await store.close()
        assert writer.last_confirmed == entries - 1, "what was taken before is confirmed"
        disk = process.world.disk
        before = {path: disk.content(path) for path in disk.paths() if path.endswith(".seg")}
        segments = recover_log(disk, SMALL_SEGMENTS, random.Random(1), 0).sealed
        assert {each.path: disk.content(each.path) for each in segments} == before, "sealed anew"
        assert segments[0].lines[writer.ref].last_entry_id == writer.last_confirmed

    on_a_store(seed, act, SMALL_SEGMENTS)


def zeros_that_are_being_written_do_not_lengthen_a_sealed_segment(seed: int) -> None:
    """Nothing follows the trailer, by which the next start finds the footer."""

    async def act(process: Process, store: LocalLedgerStore) -> None:
        writer = await store.create(Heard().listener(), properties={})
        writer.append(Run([b"entry"]))
        await asyncio.sleep(0.02)
        chain = store.log._chain
        active = chain.active
        assert active is not None
        active.filled_end = active.end  # as if the writer were faster than the zeros
        chain._start_fill(active)
        chain.abandon_active()
        await chain._settle()
        disk = process.world.disk
        assert segment.Segment(disk, active.header, disk.open(active.path)).read_footer()

    on_a_store(seed, act, SMALL_SEGMENTS)


def an_earlier_group_further_on_is_not_believed(seed: int) -> None:
    """A copy of one of the segment's own groups (a misdirected write) is older than what stands before it."""
    disk = new_disk()
    writer = Writer(disk)
    start = writer.group(record(0, b"one"))
    writer.group(record(1, b"two"))
    copy = disk.content(writer.segment.path)[start : start + BLOCK]
    disk.overwrite(writer.segment.path, copy, writer.segment.end)
    scan = scan_groups(writer.segment, Window(writer.segment))
    assert [group.header.sequence for group in scan.groups] == [1, 2]
    assert scan.damaged == [(writer.segment.end, writer.segment.end + BLOCK)]
    [old] = recover_log(disk, SMALL_SEGMENTS, random.Random(1), 0).sealed
    assert index_of(old).last_entry_id == 0


def sealed_segment(disk: SimDisk) -> segment.Segment:
    writer = Writer(disk)
    for number in range(4):
        writer.group(record(number, b"an earlier life"))
    writer.group()  # so that all of them are known durable
    [old] = recover_log(disk, SMALL_SEGMENTS, random.Random(1), 0).sealed
    return old


def a_recycled_file_is_one_segment_or_the_other(seed: int) -> None:
    """Wherever the power goes while a file is recycled, the next start finds whole segments."""
    disk = new_disk()
    old = sealed_segment(disk)

    def cut(number: int, what: str) -> None:
        for outcome in range(8):
            after = disk.crash(random.Random(f"{seed}/{number}/{outcome}"))
            recovered = recover_log(after, SMALL_SEGMENTS, random.Random(1), 0)
            assert recovered.open.sequence > 2, what

    disk.on_operation = cut
    spare = old.recycle()
    header = segment.new_header(random.Random(1_000 + seed), 7, 0)
    made = segment.create_segment(disk, header, BLOCK, spare)
    cut(0, "the end")
    assert disk.paths()[-1] == made.path
    assert made.filled_end == made.file.size() > BLOCK, "its blocks are all written"


def stale_bytes_of_a_recycled_file_are_no_data(seed: int) -> None:
    """Uuid and salt tell the groups of an earlier life from those of this one; they are no damage either."""
    disk = new_disk()
    old = sealed_segment(disk)
    made = segment.create_segment(
        disk, segment.new_header(random.Random(1_000 + seed), 7, 0), BLOCK, old.recycle()
    )
    assert b"an earlier life" in disk.content(made.path)
    cuts = TAIL_CUTS._value.get()
    assert scan_groups(made, Window(made)).groups == []
    recovered = recover_log(disk, SMALL_SEGMENTS, random.Random(1), 0)
    assert all(not each.lines for each in (*recovered.sealed, recovered.open) if each.sequence >= 7)
    assert TAIL_CUTS._value.get() == cuts


PROMISES = [
    a_recycled_file_is_one_segment_or_the_other,
    stale_bytes_of_a_recycled_file_are_no_data,
    a_sealed_segment_ends_where_it_was_durable,
    a_segment_holds_so_many_entries,
    a_clean_stop_leaves_nothing_to_repair,
    nothing_is_taken_or_written_once_the_log_closes,
    zeros_that_are_being_written_do_not_lengthen_a_sealed_segment,
    an_earlier_group_further_on_is_not_believed,
]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(promise: Callable[[int], None]) -> None:
    for seed in range(3):
        promise(seed)
