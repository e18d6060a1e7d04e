from __future__ import annotations

import struct
from typing import Any

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of, payload_offset

from tests.unit.common.wire import frames


def packed(payload: bytes, payload_size: int | None = None, **fields: Any) -> bytes:
    size = len(payload) if payload_size is None else payload_size
    metadata = pb.SingleMessageMetadata(payload_size=size, **fields).SerializeToString()
    return struct.pack(">I", len(metadata)) + metadata + payload


def test_metadata_and_payload_of_an_entry() -> None:
    entry = frames.entry(b"abc", frames.metadata(5, uuid="u"))
    assert parse_metadata(entry).uuid == "u"
    assert bytes(payload_of(entry)) == b"abc"
    assert entry[payload_offset(entry) :] == b"abc"


@pytest.mark.parametrize("entry", [b"", b"\x0e\x01abc", frames.body(), frames.entry()[:20]])
def test_bytes_that_are_no_entry_are_corruption(entry: bytes) -> None:
    with pytest.raises(DataCorruption):
        parse_metadata(entry)


@pytest.mark.parametrize("metadata", [b"\x0a\x7f", b"", b"\x0a\x01p"], ids=["cut", "empty", "incomplete"])
def test_metadata_that_is_not_a_whole_message_is_corruption(metadata: bytes) -> None:
    with pytest.raises(DataCorruption):
        parse_metadata(frames.entry(b"abc", metadata))


def test_the_messages_of_a_batch_come_in_order_with_their_payloads() -> None:
    payload = packed(b"one", partition_key="k") + packed(b"") + packed(b"three")
    messages = list(batch_messages(payload, 3))
    assert [bytes(each) for _, each in messages] == [b"one", b"", b"three"]
    assert messages[0][0].partition_key == "k"


def test_an_empty_batch_of_nothing_is_no_lie() -> None:
    assert list(batch_messages(b"", 0)) == []


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (packed(b"one"), 2),
        (packed(b"one") + packed(b"two"), 1),
        (packed(b"one", payload_size=4), 1),
        (packed(b"one", payload_size=-1), 1),
        (struct.pack(">I", 100) + b"\x18\x00", 1),
        (struct.pack(">I", 2) + b"\x18\xff", 1),
        (struct.pack(">I", 0) + b"abc", 1),
        (b"\x00\x00", 1),
    ],
    ids=[
        "fewer than the count",
        "more than the count",
        "payload beyond the end",
        "negative payload size",
        "metadata beyond the end",
        "metadata is no message",
        "no payload size",
        "cut in the size",
    ],
)
def test_a_batch_that_lies_is_corruption(payload: bytes, count: int) -> None:
    with pytest.raises(DataCorruption):
        list(batch_messages(payload, count))
