"""What a rewrite writes: order, copies, marks, holes. Segments are made by hand."""

from __future__ import annotations

import random

import pytest
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    GROUP_HEADER_SIZE,
    KIND_ENTRIES,
    KIND_FENCE,
    KIND_HOLE,
    KIND_LAC,
    KIND_LIMBO,
    Durable,
    EncodedRecord,
    checksum_body,
    encode_group,
    encode_record_header,
)
from magnetar.ledger.segment_log.compaction import DuplicateMismatch, IncompleteIndex, Rewrite
from magnetar.ledger.segment_log.file_codec_v1 import FLAG_SORTED, MARK_FENCED, doubt_marks, pack_doubt
from magnetar.ledger.segment_log.recovery import rebuild_indexes
from magnetar.ledger.segment_log.scan import RecordAt, Window, salvage_records, scan_groups
from magnetar.ledger.segment_log.segment import (
    SEGMENTS_DIRECTORY,
    Segment,
    create_segment,
    new_header,
    segment_path,
)
from magnetar.sim.disk import SimDisk

A, B = LedgerRef(1, 77), LedgerRef(2, 5)


def entries(ref: LedgerRef, first: int, *bodies: bytes, lac: int = -1) -> EncodedRecord:
    length = sum(map(len, bodies))
    header = encode_record_header(
        KIND_ENTRIES,
        ref.id,
        ref.key,
        first,
        lac,
        lengths=list(map(len, bodies)),
        body_length=length,
        body_crc=checksum_body(bodies),
    )
    return EncodedRecord(ref.id, ref.key, first, len(bodies), header, bodies, length)


def mark(kind: int, ref: LedgerRef, lac: int) -> EncodedRecord:
    return EncodedRecord(ref.id, ref.key, -1, 0, encode_record_header(kind, ref.id, ref.key, -1, lac), (), 0)


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.makedirs(SEGMENTS_DIRECTORY)
    return disk


def sealed(disk: SimDisk, sequence: int, *groups: list[EncodedRecord]) -> Segment:
    """A segment with these groups."""
    segment = create_segment(disk, new_header(random.Random(sequence), sequence, 0), 2 * BLOCK)
    for number, records in enumerate(groups, 1):
        durable = Durable(number - 1, sequence, segment.end)
        buffers, _ = encode_group(records, segment.header.uuid, segment.header.salt, number, durable)
        segment.file.pwritev(buffers, segment.end)
        segment.end = segment.durable_end = segment.end + sum(map(len, buffers))
        segment.last_group_sequence = number
    segment.footer_offset = segment.end
    segment.indexes = rebuild_indexes(segment)
    segment.seal(segment.end)
    segment.indexes = {}
    return segment


def rewrite(
    disk: SimDisk, *inputs: Segment, refs: tuple[LedgerRef, ...] = (A, B), slice_bytes: int = 1 << 20
) -> Rewrite:
    header = new_header(random.Random(9), 9, 0, FLAG_SORTED)
    return Rewrite(disk, header, inputs, refs, {}, slice_bytes)


def finished(work: Rewrite) -> Segment:
    while work.step():
        pass
    output = work.finish()
    assert output is not None
    return output


def records(segment: Segment) -> list[RecordAt]:
    window = Window(segment)
    found: list[RecordAt] = []
    for group in scan_groups(segment, window).groups:
        found += salvage_records(segment, window, group.offset + GROUP_HEADER_SIZE, group.end)
    return found


def told(segment: Segment) -> list[tuple[int, int, int, bytes]]:
    """(kind, ledger, first entry, body) of each record."""
    return [
        (
            at.header.kind,
            at.header.ledger_id,
            at.header.first_entry_id,
            segment.file.pread(at.header.body_length, at.offset + at.header.header_length),
        )
        for at in records(segment)
    ]


def test_records_come_out_in_the_order_of_ledgers_and_entries() -> None:
    disk = new_disk()
    first = sealed(disk, 1, [entries(A, 0, b"a0"), entries(B, 0, b"b0")], [entries(A, 1, b"a1", b"a2")])
    second = sealed(disk, 2, [entries(A, 3, b"a3"), entries(B, 1, b"b1")])
    output = finished(rewrite(disk, second, first, slice_bytes=100))
    assert told(output) == [
        (KIND_ENTRIES, 1, 0, b"a0"),
        (KIND_ENTRIES, 1, 1, b"a1a2"),
        (KIND_ENTRIES, 1, 3, b"a3"),
        (KIND_ENTRIES, 2, 0, b"b0"),
        (KIND_ENTRIES, 2, 1, b"b1"),
    ]
    assert (output.lines[A].last_entry_id, output.lines[A].byte_length, output.lines[A].runs) == (3, 8, 3)
    assert output.path == segment_path(9)
    assert disk.crash(random.Random(1)).content(output.path) == disk.content(output.path), "it is durable"


def test_dead_ledgers_are_left_behind() -> None:
    disk = new_disk()
    segment = sealed(disk, 1, [entries(A, 0, b"a0"), entries(B, 0, b"b0")])
    assert list(finished(rewrite(disk, segment, refs=(B,))).lines) == [B]


def test_equal_copies_are_written_once_and_a_sound_one_is_chosen() -> None:
    disk = new_disk()
    first = sealed(disk, 1, [entries(A, 0, b"the entry")])
    second = sealed(disk, 2, [entries(A, 0, b"the entry")])
    disk.flip_bit(first.path, 8 * disk.content(first.path).index(b"the entry"))
    work = rewrite(disk, first, second)
    assert told(finished(work)) == [(KIND_ENTRIES, 1, 0, b"the entry")]
    assert (work.duplicates, work.unreadable_entries) == (1, 0)


def test_copies_that_differ_stop_the_rewrite() -> None:
    disk = new_disk()
    first, second = (
        sealed(disk, number, [entries(A, 0, body)]) for number, body in ((1, b"one"), (2, b"two"))
    )
    work = rewrite(disk, first, second)
    with pytest.raises(DuplicateMismatch, match="entry 0"):
        work.step()
    work.abandon()
    assert disk.paths() == [first.path, second.path]


def test_entry_sound_in_another_segment_is_not_rewritten() -> None:
    disk = new_disk()
    old = sealed(disk, 1, [entries(A, 0, b"a0"), entries(A, 1, b"a1")])
    copy = sealed(disk, 2, [entries(A, 0, b"a0"), entries(A, 1, b"a1")])
    disk.flip_bit(copy.path, 8 * disk.content(copy.path).index(b"a1"))
    work = Rewrite(disk, new_header(random.Random(9), 9, 0), [old], [A], {A: [copy]})
    assert told(finished(work)) == [(KIND_ENTRIES, 1, 1, b"a1")]


def test_a_shorter_copy_in_another_segment_does_not_stand_for_the_whole_record() -> None:
    disk = new_disk()
    old = sealed(disk, 1, [entries(A, 0, b"a0", b"a1", b"a2")])
    repair = sealed(disk, 2, [entries(A, 0, b"a0")])
    work = Rewrite(disk, new_header(random.Random(9), 9, 0), [old], [A], {A: [repair]})
    assert told(finished(work)) == [(KIND_ENTRIES, 1, 0, b"a0a1a2")]


def test_nothing_left_is_no_segment() -> None:
    disk = new_disk()
    old, copy = (sealed(disk, number, [entries(A, 0, b"a0")]) for number in (1, 2))
    work = Rewrite(disk, new_header(random.Random(9), 9, 0), [old], [A], {A: [copy]})
    assert work.step() == 0
    assert work.finish() is None
    assert disk.paths() == [old.path, copy.path]


def test_marks_are_carried_without_an_entry() -> None:
    disk = new_disk()
    segment = sealed(disk, 1, [mark(KIND_FENCE, A, 3)], [mark(KIND_LIMBO, A, 7), mark(KIND_FENCE, B, -1)])
    output = finished(rewrite(disk, segment))
    assert [(kind, ledger) for kind, ledger, _, _ in told(output)] == [
        (KIND_FENCE, 1),
        (KIND_LIMBO, 1),
        (KIND_FENCE, 2),
    ]
    assert (output.lines[A].marks, output.lines[A].lac) == (MARK_FENCED | doubt_marks(pack_doubt(1, 0)), 7)
    assert rebuild_indexes(output)[A].lac == 7


def test_the_highest_last_add_confirmed_is_carried_when_its_record_is_not() -> None:
    disk = new_disk()
    old = sealed(disk, 1, [entries(A, 0, b"a0", lac=-1)], [mark(KIND_LAC, A, 5)])
    output = finished(rewrite(disk, old))
    assert [kind for kind, _, _, _ in told(output)] == [KIND_ENTRIES, KIND_LAC]
    assert (output.lines[A].lac, rebuild_indexes(output)[A].lac) == (5, 5)
    assert output.lines[A].marks == 0


def test_a_lost_header_becomes_a_hole_that_names_its_entries() -> None:
    disk = new_disk()
    segment = sealed(disk, 1, [entries(A, 0, b"a0")], [entries(A, 1, b"a1", b"a2")], [entries(A, 3, b"a3")])
    disk.flip_bit(segment.path, 8 * (disk.content(segment.path).index(b"a1a2") - 60))
    work = rewrite(disk, segment)
    output = finished(work)
    assert [(kind, first) for kind, _, first, _ in told(output)] == [
        (KIND_ENTRIES, 0),
        (KIND_HOLE, 1),
        (KIND_ENTRIES, 3),
    ]
    assert work.unreadable_entries == 2
    again = Rewrite(disk, new_header(random.Random(10), 10, 0), [output], [A], {})
    assert [(kind, first) for kind, _, first, _ in told(finished(again))][1] == (KIND_HOLE, 1)
    assert rebuild_indexes(output)[A].last_entry_id == 3


def test_a_damaged_index_hides_nothing_from_compaction() -> None:
    disk = new_disk()
    segment = sealed(disk, 1, [entries(A, 0, b"a0")], [entries(A, 1, b"a1")])
    disk.flip_bit(segment.path, 8 * (segment.footer_offset + segment.lines[A].arrays_offset))
    assert len(told(finished(rewrite(disk, segment)))) == 2


def test_a_segment_whose_lost_records_have_no_name_left_is_not_rewritten() -> None:
    """Its footer and a group's directory are damaged: an output would look whole without those entries."""
    disk = new_disk()
    source = sealed(disk, 1, [entries(A, 0, b"first")], [entries(A, 1, b"second")])
    disk.flip_bit(source.path, 8 * (source.footer_offset + source.summaries[A].arrays_offset))
    disk.spoil(source.path, 2 * BLOCK)
    with pytest.raises(IncompleteIndex):
        finished(rewrite(disk, source))


def test_every_group_of_the_output_survives_the_loss_of_its_footer() -> None:
    disk = new_disk()
    segment = sealed(disk, 1, [entries(A, 0, b"a0")], [entries(A, 1, b"a1")])
    output = finished(rewrite(disk, segment, slice_bytes=1))
    disk.flip_bit(output.path, 8 * output.footer_offset)
    again = Segment(disk, output.header, disk.open(output.path))
    assert not again.read_footer()
    assert again.footer_offset == output.footer_offset, "the trailer names the durable end"
