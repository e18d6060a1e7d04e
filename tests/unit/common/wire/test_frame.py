from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from magnetar.common.errors import ChecksumMismatch, FrameTooLarge, MalformedFrame
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.frame import (
    FrameDecoder,
    checked_entry,
    encode_command,
    encode_entry,
    encode_payload_command,
    strip_entry_metadata,
)

from tests.unit.common.wire import frames

PING = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())
MESSAGE = frames.command(message={"consumer_id": 1, "message_id": {"ledgerId": 2, "entryId": 3}})


def test_a_simple_frame_is_two_sizes_and_the_command() -> None:
    assert encode_command(PING) == b"\0\0\0\x09\0\0\0\x05" + b"\x08\x12\x92\x01\x00"


def test_an_encoded_entry_is_the_one_a_client_would_make() -> None:
    assert encode_entry(frames.metadata(7), b"abc") == frames.entry(b"abc", frames.metadata(7))


def test_frames_come_back_with_their_entry_and_entry_metadata() -> None:
    entry = frames.entry()
    data = (
        encode_command(PING)
        + encode_payload_command(MESSAGE, entry)
        + encode_payload_command(MESSAGE, frames.with_entry_metadata(entry))
    )
    plain, message, annotated = FrameDecoder().receive_data(data)
    assert (plain.command, plain.entry) == (PING, b"")
    assert (message.command, message.entry, message.entry_metadata) == (MESSAGE, entry, b"")
    assert annotated.entry == entry
    assert pb.BrokerEntryMetadata.FromString(annotated.entry_metadata).index == 6


def test_a_frame_in_pieces_comes_once_with_its_last_byte() -> None:
    decoder = FrameDecoder()
    data = encode_payload_command(MESSAGE, frames.entry())
    assert [len(decoder.receive_data(data[index : index + 1])) for index in range(len(data))] == [
        *[0] * (len(data) - 1),
        1,
    ]


def test_a_frame_over_the_limit_is_refused_by_its_first_bytes() -> None:
    limit = 100 + 10_240
    assert FrameDecoder(100).receive_data(struct.pack(">II", limit - 4, 5)) == []
    with pytest.raises(FrameTooLarge, match=f"{limit + 1} bytes, at most {limit}"):
        FrameDecoder(100).receive_data(struct.pack(">II", limit - 3, 5))


@pytest.mark.parametrize(
    "sizes", [(0, 0), (3, 0), (4, 0), (8, 5), (8, 2**32 - 1), (9, 0)], ids=lambda sizes: f"{sizes}"
)
def test_sizes_that_contradict_each_other_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(MalformedFrame):
        FrameDecoder().receive_data(struct.pack(">II", *sizes) + bytes(16))


def test_a_missing_checksum_is_added() -> None:
    assert checked_entry(frames.body(b"abc")) == frames.entry(b"abc")


def test_a_wrong_checksum_is_told_apart_from_a_malformed_frame() -> None:
    with pytest.raises(ChecksumMismatch):
        checked_entry(frames.entry(crc_xor=1))


@pytest.mark.parametrize("size", range(14))
def test_an_entry_too_short_for_its_metadata_size_is_malformed(size: int) -> None:
    with pytest.raises((MalformedFrame, ChecksumMismatch)):
        checked_entry(frames.entry()[:size])


@pytest.mark.parametrize("excess", [1, 2**31])
def test_metadata_that_reaches_beyond_the_frame_is_malformed_with_and_without_checksum(excess: int) -> None:
    room = len(frames.metadata()) + 3
    lie = struct.pack(">I", room + excess) + frames.metadata() + b"abc"
    for body in (lie, encode_entry(b"", b"")[:2] + struct.pack(">I", crc32c(lie)) + lie):
        with pytest.raises(MalformedFrame):
            checked_entry(body)


def test_an_empty_payload_is_a_message_all_the_same() -> None:
    assert checked_entry(frames.entry(b"")) == frames.entry(b"")


def test_broker_entry_metadata_that_does_not_fit_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        strip_entry_metadata(b"\x0e\x02\x00\x00\x00\x09short")
    assert strip_entry_metadata(b"\x0e\x02\x00\x00\x00\x00rest") == (b"", b"rest")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "this looks like TLS"),
        (b"GET / HTTP/1.1\r\n", "this looks like HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this looks like an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46\x00", "this looks like a TLS port"),
        (b"\x7f\xff\xff\xff\0\0\0\1", "are accepted$"),
    ],
)
def test_another_protocol_is_named_where_it_is_known(said: bytes, told: str) -> None:
    with pytest.raises(FrameTooLarge, match=told):
        FrameDecoder().receive_data(said)
