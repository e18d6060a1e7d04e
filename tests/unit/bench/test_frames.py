"""What the generator sends are real frames, and what it counts is what came."""

from __future__ import annotations

import struct

import crc32c
import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.varint import encode_varint

from bench.frames import (
    FIRST_SEQUENCE_ID,
    RECEIPT_MARK,
    MarkCounter,
    MixedSends,
    SendTemplate,
    sequence_varints,
    simple_frame,
)


def split(frames: bytes) -> list[tuple[pb.BaseCommand, bytes]]:
    """(command, what follows it) of each frame."""
    found = []
    while frames:
        total_size, command_size = struct.unpack_from(">II", frames)
        command = pb.BaseCommand.FromString(frames[8 : 8 + command_size])
        found.append((command, frames[8 + command_size : 4 + total_size]))
        frames = frames[4 + total_size :]
    return found


@pytest.mark.parametrize("first", [FIRST_SEQUENCE_ID, (1 << 22) - 3, (1 << 28) - 5])
def test_patched_sequence_ids_are_varints_of_four_bytes(first: int) -> None:
    assert sequence_varints(first, 5) == [encode_varint(first + number) for number in range(5)]


def test_sequence_ids_go_on_over_the_end_of_the_table() -> None:
    first, count = (129 << 14) - 2, (1 << 14) + 4
    assert sequence_varints(first, count) == [encode_varint(first + number) for number in range(count)]


def test_a_burst_is_frames_that_differ_in_nothing_but_their_sequence_id() -> None:
    template = SendTemplate(100)
    frames = template.burst(FIRST_SEQUENCE_ID + 7, 3)
    assert len(frames) == 3 * template.frame_bytes
    sends = split(frames)
    assert [command.send.sequence_id for command, _ in sends] == [
        FIRST_SEQUENCE_ID + number for number in (7, 8, 9)
    ]
    assert {command.send.producer_id for command, _ in sends} == {1}
    assert len({entry for _, entry in sends}) == 1


@pytest.mark.parametrize(("size", "batch"), [(100, 1), (1_024, 1), (1_024, 100)])
def test_the_checksum_and_the_message_count_of_an_entry_hold(size: int, batch: int) -> None:
    ((command, entry),) = split(SendTemplate(size, batch).burst(FIRST_SEQUENCE_ID, 1))
    magic, checksum, metadata_size = struct.unpack_from(">HII", entry)
    metadata = pb.MessageMetadata.FromString(entry[10 : 10 + metadata_size])
    assert magic == 0x0E01
    assert checksum == crc32c.crc32c(entry[6:])
    assert command.send.num_messages == metadata.num_messages_in_batch == batch
    assert len(entry) - 10 - metadata_size >= size * batch


def test_marks_are_counted_however_the_stream_is_cut() -> None:
    template = SendTemplate(100)
    receipt = simple_frame(
        "send_receipt", producer_id=1, sequence_id=FIRST_SEQUENCE_ID, message_id={"ledgerId": 1, "entryId": 2}
    )
    for stream, mark in (
        (template.burst(FIRST_SEQUENCE_ID, 20), template.message_mark),
        (receipt * 20, RECEIPT_MARK),
    ):
        for step in (1, 7, len(mark), 64, len(stream)):
            counter = MarkCounter(mark)
            found = sum(counter.feed(stream[at : at + step]) for at in range(0, len(stream), step))
            assert counter.count == found == 20


def metadata_of(entry: bytes) -> pb.MessageMetadata:
    (size,) = struct.unpack_from(">I", entry, 6)
    return pb.MessageMetadata.FromString(entry[10 : 10 + size])


@pytest.mark.parametrize("first", [0, 2, 3, 7])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_mixed_sends_go_round_their_templates_wherever_a_burst_begins(first: int, count: int) -> None:
    keys = ["a", "bb", "ccc"]
    sends = MixedSends([SendTemplate(10, key=key) for key in keys])
    found = split(sends.burst(FIRST_SEQUENCE_ID + first, count))
    numbers = range(first, first + count)
    assert [command.send.sequence_id - FIRST_SEQUENCE_ID for command, _ in found] == [*numbers]
    assert [metadata_of(entry).partition_key for _, entry in found] == [keys[n % 3] for n in numbers]
    for _, entry in found:
        assert crc32c.crc32c(entry[6:]) == struct.unpack_from(">I", entry, 2)[0]


def test_a_delayed_message_ends_with_the_time_when_it_is_due() -> None:
    ((_, entry),) = split(SendTemplate(100, deliver_at_ms=1_800_000_000_123).burst(FIRST_SEQUENCE_ID, 1))
    assert metadata_of(entry).deliver_at_time == 1_800_000_000_123
    assert int.from_bytes(entry[-8:], "big") == 1_800_000_000_123
