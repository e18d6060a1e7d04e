"""Opening the log on what an unlucky past left: cut creations, damaged headers, torn tails, later formats."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    KIND_ENTRIES,
    Durable,
    EncodedRecord,
    checksum_body,
    encode_group,
    encode_record_header,
)
from magnetar.ledger.segment_log.file_codec_v1 import HEADER_COPY_OFFSET
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.recovery import RecoveredLog, rebuild_indexes, recover_log
from magnetar.ledger.segment_log.segment import (
    SEGMENTS_DIRECTORY,
    Segment,
    create_segment,
    new_header,
    segment_path,
)
from magnetar.sim.disk import SimDisk

from tests.simulation.power_loss import SMALL_SEGMENTS

REF = LedgerRef(1, 77)


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.makedirs(SEGMENTS_DIRECTORY)
    return disk


def recover(disk: SimDisk) -> RecoveredLog:
    return recover_log(disk, SMALL_SEGMENTS, random.Random(5), 0)


def record(first: int, *entries: bytes) -> EncodedRecord:
    length = sum(map(len, entries))
    header = encode_record_header(
        KIND_ENTRIES,
        REF.id,
        REF.key,
        first,
        first - 1,
        lengths=list(map(len, entries)),
        body_length=length,
        body_crc=checksum_body(entries),
    )
    return EncodedRecord(REF.id, REF.key, first, len(entries), header, entries, length)


class Writer:
    """Writes groups into a segment by hand."""

    def __init__(self, disk: SimDisk, sequence: int = 1) -> None:
        self.segment = create_segment(disk, new_header(random.Random(sequence), sequence, 0), 16 << 10)
        self.durable = Durable(0, 0, BLOCK)
        self.sequence = 0

    def group(self, *records: EncodedRecord) -> int:
        """Write one group; returns where it starts."""
        self.sequence += 1
        header = self.segment.header
        buffers, _ = encode_group(list(records), header.uuid, header.salt, self.sequence, self.durable)
        start = self.segment.end
        self.segment.file.pwritev(buffers, start)
        self.segment.end += sum(map(len, buffers))
        self.durable = Durable(self.sequence, self.segment.sequence, self.segment.end)
        return start


def index_of(segment: Segment) -> LedgerIndex:
    return segment.indexes[REF] if REF in segment.indexes else segment.load_index(REF)


def test_a_fresh_directory_gets_its_first_segment() -> None:
    disk = new_disk()
    log = recover(disk)
    assert (log.sealed, log.open.sequence, log.next_group_sequence) == ([], 1, 1)
    assert disk.paths() == [segment_path(1)]


def test_the_last_group_is_rewritten_and_the_old_segment_sealed_before_it() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"durable"))
    writer.group(record(1, b"perhaps"))
    log = recover(disk)
    [old] = log.sealed
    assert old.sealed
    assert (index_of(old).last_entry_id, index_of(log.open).last_entry_id) == (0, 1)
    assert log.next_group_sequence == 4, "the rewritten group has a sequence of its own"
    again = recover(disk.crash(random.Random(1)))
    holders = [segment for segment in (*again.sealed, again.open) if segment.summaries or segment.indexes]
    assert max(index_of(segment).last_entry_id for segment in holders) == 1


def test_a_segment_with_nothing_durable_in_it_goes() -> None:
    disk = new_disk()
    Writer(disk).group(record(0, b"only"))
    log = recover(disk)
    assert disk.paths() == [segment_path(2)]
    assert index_of(log.open).last_entry_id == 0


def test_a_torn_last_group_keeps_its_sound_records_up_to_the_first_lost_one() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"durable"))
    start = writer.group(record(1, b"sound"), record(2, b"t" * 500), record(3, b"after the gap"))
    place = disk.content(segment_path(1)).index(b"t" * 500)
    assert place > start
    disk.flip_bit(segment_path(1), 8 * place)
    assert index_of(recover(disk).open).last_entry_id == 1


def test_a_damaged_record_before_the_last_group_stays_a_hole_with_its_entries() -> None:
    disk = new_disk()
    writer = Writer(disk)
    start = writer.group(record(0, b"a", b"b"), record(2, b"c"))
    writer.group()
    magic = disk.content(segment_path(1)).index(b"MREC", start + 1)
    disk.flip_bit(segment_path(1), 8 * (magic + 20))
    [old] = recover(disk).sealed
    index = index_of(old)
    assert (index.last_entry_id, len(index)) == (2, 2), "both runs are known, one is unreadable"


def test_resynchronization_finds_the_groups_after_a_damaged_group_header() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"first"))
    damaged = writer.group(record(1, b"second" * 2000))
    writer.group(record(2, b"third"))
    writer.group()
    disk.flip_bit(segment_path(1), 8 * (damaged + 30))
    [old] = recover(disk).sealed
    assert [index_of(old).find(entry) for entry in range(3)] == [0, 1, 2]


def test_a_file_whose_creation_was_cut_is_removed() -> None:
    disk = new_disk()
    disk.open(segment_path(1), create=True)
    disk.open(segment_path(2), create=True).pwritev([bytes(5 * BLOCK)], 0)
    log = recover(disk)
    assert disk.paths() == [segment_path(3)]
    assert log.open.sequence == 3


def test_a_segment_without_a_readable_header_is_kept_and_not_read() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"precious"))
    for copy in (0, HEADER_COPY_OFFSET):
        disk.flip_bit(segment_path(1), 8 * (copy + 20))
    recover(disk)
    assert disk.paths() == [segment_path(1), segment_path(2)]
    assert b"precious" in disk.content(segment_path(1))


def test_a_sealed_segment_is_read_by_its_trailer_when_its_header_is_damaged() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"sealed"))
    writer.group()
    recover(disk)
    for copy in (0, HEADER_COPY_OFFSET):
        disk.flip_bit(segment_path(1), 8 * (copy + 20))
    log = recover(disk)
    assert [segment.sequence for segment in log.sealed] == [1]
    assert index_of(log.sealed[0]).last_entry_id == 0


def test_a_damaged_footer_is_made_again_from_the_records() -> None:
    disk = new_disk()
    writer = Writer(disk)
    writer.group(record(0, b"one"), record(1, b"two"))
    writer.group()
    [old] = recover(disk).sealed
    disk.flip_bit(segment_path(1), 8 * (old.footer_offset + old.summaries[REF].arrays_offset))
    with pytest.raises(DataCorruption):
        old.load_index(REF)
    assert rebuild_indexes(old)[REF].find(1) == 1


def test_a_segment_of_a_later_release_stops_the_start_and_is_not_touched() -> None:
    disk = new_disk()
    Writer(disk).group(record(0, b"x"))
    block = bytearray(disk.content(segment_path(1))[:BLOCK])
    for copy in (0, HEADER_COPY_OFFSET):
        block[copy + 12] = 1
        block[copy + 60 : copy + 64] = crc32c(bytes(block[copy : copy + 60])).to_bytes(4, "little")
    disk.overwrite(segment_path(1), bytes(block), 0)
    before = disk.content(segment_path(1))
    with pytest.raises(UnsupportedFormat, match="incompatible features 0x1"):
        recover(disk)
    assert disk.content(segment_path(1)) == before


def test_a_segment_under_another_name_stops_the_start() -> None:
    disk = new_disk()
    Writer(disk).group(record(0, b"x"))
    disk.rename(segment_path(1), segment_path(4))
    with pytest.raises(DataCorruption, match="misplaced"):
        recover(disk)
