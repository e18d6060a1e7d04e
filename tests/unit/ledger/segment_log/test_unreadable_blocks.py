"""Sectors that a disk cannot read: each costs what was in it, and keeps nothing else from going on."""

from __future__ import annotations

import errno
import random
from dataclasses import replace

import pytest
from magnetar.common.errors import EntryUnreadable
from magnetar.ledger.segment_log.codec_v1 import BLOCK
from magnetar.ledger.segment_log.file_codec_v1 import FLAG_RECYCLED, encode_segment_header
from magnetar.ledger.segment_log.recovery import DAMAGED_RECORDS, QUARANTINED, RecoveredLog, recover_log
from magnetar.ledger.segment_log.segment import segment_path
from magnetar.ledger.segment_log.torn_group import Torn
from magnetar.ledger.segment_log.unreadable_blocks import READ_ERRORS, read_around
from magnetar.sim.disk import SimDisk

from tests.simulation.power_loss import SMALL_SEGMENTS
from tests.unit.ledger.segment_log.test_recovery import Writer, index_of, new_disk, record
from tests.unit.ledger.test_garbage_collector import Bench, payload, simulate

FIRST = segment_path(1)


def recovered(disk: SimDisk, *, replica: bool = True) -> tuple[RecoveredLog, list[str]]:
    """(the log, what it doubts)"""
    doubts: list[str] = []

    def note(reason: str, torn: Torn | None = None) -> None:
        doubts.append(reason)

    return recover_log(disk, SMALL_SEGMENTS, random.Random(5), 0, replica=replica, on_doubt=note), doubts


def three_groups(disk: SimDisk, *, entry: bytes = b"second") -> list[int]:
    """A segment with entries 0, 1 and 2, all known durable; where their groups are."""
    writer = Writer(disk)
    places = [writer.group(record(number, each)) for number, each in enumerate((b"first", entry, b"third"))]
    writer.group()
    return places


def test_a_read_goes_around_the_blocks_that_are_lost() -> None:
    disk = SimDisk()
    file = disk.open("a", create=True)
    file.pwritev([bytes(range(256)) * 64], 0)
    disk.spoil("a", BLOCK)
    lost: list[int] = []
    before = READ_ERRORS._value.get()
    data = read_around(file, "a", 3 * BLOCK, 100, lost.append)
    assert (len(data), lost) == (3 * BLOCK, [BLOCK])
    whole = disk.content("a")
    assert data[: BLOCK - 100] == whole[100:BLOCK]
    assert data[2 * BLOCK - 100 :] == whole[2 * BLOCK : 3 * BLOCK + 100]
    assert data[BLOCK - 100 : 2 * BLOCK - 100].strip(b"\0"), "zeros would say that nothing is there"
    assert READ_ERRORS._value.get() == before + 1
    assert read_around(file, "a", 100 * BLOCK, 3 * BLOCK) == whole[3 * BLOCK :]


def test_another_failure_of_the_disk_is_no_damage() -> None:
    class Gone:
        def pread(self, length: int, offset: int) -> bytes:
            raise OSError(errno.ESTALE, "stale file handle")

    with pytest.raises(OSError, match="stale"):
        read_around(Gone(), "a", 100, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("replica", [False, True])
def test_a_group_that_cannot_be_read_at_a_start_costs_its_own_entries(replica: bool) -> None:
    disk = new_disk()
    places = three_groups(disk)
    disk.spoil(FIRST, places[1])
    before = DAMAGED_RECORDS._value.get()
    log, doubts = recovered(disk, replica=replica)
    [old] = log.sealed
    index = index_of(old)
    assert [index.find(entry) >= 0 for entry in range(3)] == [True, True, True]
    assert [index.first_entry_id(place) for place in range(len(index))] == [0, 2]
    assert DAMAGED_RECORDS._value.get() == before + 1
    assert doubts == [f"nothing tells what is at {places[1]} of segment 1"]


def test_entries_that_a_directory_names_are_holes_and_no_doubt() -> None:
    disk = new_disk()
    writer = Writer(disk)
    start = writer.group(record(0, b"a"), record(1, b"b" * 5000), record(2, b"c"))
    writer.group()
    disk.spoil(FIRST, start + BLOCK)
    log, doubts = recovered(disk)
    assert (doubts, len(index_of(log.sealed[0]))) == ([], 3)


@pytest.mark.parametrize("recycled", [False, True])
def test_a_last_group_that_cannot_be_read_is_a_doubt(recycled: bool) -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"durable"))
    last = writer.group(record(1, b"perhaps"))
    if recycled:
        again = replace(writer.segment.header, flags=FLAG_RECYCLED)
        disk.overwrite(FIRST, encode_segment_header(again), 0)
    disk.spoil(FIRST, last)
    log, doubts = recovered(disk)
    assert doubts == ["the last group, in segment 1, is torn or damaged"]
    assert index_of(log.open).last_entry_id == 0, "what was before it is written again"


def test_a_group_of_zeros_in_the_middle_is_a_doubt() -> None:
    """A write that was lost: nothing tells that something was there, but that its neighbors are apart."""
    disk = new_disk()
    places = three_groups(disk)
    disk.overwrite(FIRST, bytes(BLOCK), places[1])
    _, doubts = recovered(disk)
    assert doubts == [f"nothing tells what is at {places[1]} of segment 1"]


def test_a_last_group_of_zeros_that_the_next_segment_knows_is_a_doubt() -> None:
    disk = new_disk()
    first = Writer(disk)
    first.group(record(0, b"first"))
    last = first.group(record(1, b"second"))
    second = Writer(disk, sequence=2)
    second.sequence, second.durable = first.sequence, first.durable
    second.group(record(2, b"third"))
    disk.overwrite(FIRST, bytes(BLOCK), last)
    _, doubts = recovered(disk)
    assert doubts == [f"nothing tells what is at {last} of segment 1"]


def test_a_footer_that_cannot_be_read_is_made_again() -> None:
    disk = new_disk()
    three_groups(disk)
    [old] = recovered(disk)[0].sealed
    disk.spoil(FIRST, old.footer_offset)
    log, _ = recovered(disk)
    assert {index_of(each).last_entry_id for each in (*log.sealed, log.open)} == {1, 2}
    assert all(each.sealed for each in log.sealed)


def test_a_header_that_cannot_be_read_is_read_by_the_trailer_or_the_file_kept() -> None:
    disk = new_disk()
    three_groups(disk)
    recovered(disk)
    disk.spoil(FIRST, 0)
    log, doubts = recovered(disk)
    assert ([each.sequence for each in log.sealed], doubts) == ([1], [])

    disk = new_disk()
    three_groups(disk)
    disk.spoil(FIRST, 0)
    before = QUARANTINED._value.get()
    log, doubts = recovered(disk)
    assert (log.sealed, doubts) == ([], ["segment 1 can't be read"])
    assert QUARANTINED._value.get() == before + 1
    assert f"{FIRST}.unreadable" in disk.paths()


def test_one_bad_sector_costs_a_reader_no_entry_beside_it() -> None:
    async def act(bench: Bench) -> None:
        [ref, *_] = await bench.ledgers(8)
        await bench.restart()
        disk = bench.world.disk
        [path] = [each for each in bench.segment_files() if payload(ref, 1) in disk.content(each)]
        disk.spoil(path, disk.content(path).index(payload(ref, 1)))
        reader = await bench.store.open(ref)
        readable = []
        for number in range(4):
            try:
                run, *_ = await reader.read(number, 3, 1 << 20)
            except EntryUnreadable:
                continue
            assert run.entries[0] == payload(ref, number)
            readable.append(number)
        assert 1 not in readable
        assert len(readable) >= 2, "a page holds two of them at most"

    simulate(act)


def test_compaction_goes_around_a_bad_sector_and_gives_the_rest_back() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(8)
        await bench.restart()
        disk = bench.world.disk
        [path] = [each for each in bench.segment_files() if payload(refs[0], 1) in disk.content(each)]
        disk.spoil(path, disk.content(path).index(payload(refs[0], 1)))
        for ref in refs[2:]:
            await bench.store.delete(ref)
        await bench.collect()
        assert path not in bench.segment_files(), "it was compacted"
        for _ in range(2):
            reader = await bench.store.open(refs[0])
            assert reader.last_confirmed == 3, "no ledger gets shorter"
            with pytest.raises(EntryUnreadable):
                await reader.read(1, 1, 1)
            await bench.restart()

    simulate(act)


def test_a_store_starts_without_its_list_of_condemned_ledgers() -> None:
    async def act(bench: Bench) -> None:
        refs = await bench.ledgers(8)
        await bench.restart()
        for ref in refs[2:]:
            await bench.store.delete(ref)
        await bench.collect()
        bench.world.disk.spoil("condemned", 0)
        await bench.restart()
        await bench.store.delete(refs[1])
        await bench.collect()
        await bench.intact(refs[:1])

    simulate(act)
