"""Chunks put together again, whatever comes between and whatever is missing."""

from __future__ import annotations

import pytest
from magnetar.client.consumer.chunks import ChunkAssembler
from magnetar.client.consumer.options import Chunking
from magnetar.common.wire.pulsar_pb2 import MessageMetadata


def chunk(uuid: str, number: int, total: int = 2) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=total,
    )


def test_chunks_of_several_messages_come_together() -> None:
    chunks = ChunkAssembler(10, 0)
    assert chunks.add(chunk("a", 0, 3), (1, 0), b"x", 0.0) is None
    assert chunks.add(chunk("b", 0), (1, 1), b"1", 0.0) is None
    assert chunks.add(chunk("a", 1, 3), (1, 2), b"y", 0.0) is None
    assert chunks.add(chunk("b", 1), (1, 3), b"2", 0.0) == (b"12", [(1, 1), (1, 3)])
    assert chunks.add(chunk("a", 2, 3), (1, 4), b"z", 0.0) == (b"xyz", [(1, 0), (1, 2), (1, 4)])
    assert chunks.dropped == []


def test_a_chunk_without_those_before_it_is_dropped() -> None:
    chunks = ChunkAssembler(10, 0)
    assert chunks.add(chunk("a", 1), (1, 1), b"y", 0.0) is None
    assert chunks.dropped == [(1, 1)]
    chunks.dropped.clear()
    chunks.add(chunk("b", 0, 3), (1, 2), b"x", 0.0)
    assert chunks.add(chunk("b", 2, 3), (1, 4), b"z", 0.0) is None
    assert chunks.dropped == [(1, 2), (1, 4)]


def test_a_chunk_that_comes_twice_counts_once() -> None:
    chunks = ChunkAssembler(10, 0)
    chunks.add(chunk("a", 0, 3), (1, 0), b"x", 0.0)
    chunks.add(chunk("a", 1, 3), (1, 1), b"y", 0.0)
    assert chunks.add(chunk("a", 1, 3), (1, 1), b"y", 0.0) is None
    assert chunks.repeated == []
    assert chunks.add(chunk("a", 1, 3), (1, 2), b"y", 0.0) is None
    assert chunks.add(chunk("a", 2, 3), (1, 3), b"z", 0.0) == (b"xyz", [(1, 0), (1, 1), (1, 3)])
    assert (chunks.dropped, chunks.repeated) == ([], [(1, 2)])


def test_a_message_that_begins_again_is_taken_from_its_new_beginning() -> None:
    chunks = ChunkAssembler(10, 0)
    chunks.add(chunk("a", 0), (1, 0), b"x", 0.0)
    chunks.add(chunk("a", 0), (1, 5), b"x", 0.0)
    assert chunks.add(chunk("a", 1), (1, 6), b"y", 0.0) == (b"xy", [(1, 5), (1, 6)])
    assert chunks.repeated == [(1, 0)]


def test_incomplete_messages_are_bounded_and_the_oldest_goes() -> None:
    chunks = ChunkAssembler(2, 0)
    for number in range(3):
        chunks.add(chunk(f"m{number}", 0), (1, number), b"x", 0.0)
    assert chunks.dropped == [(1, 0)]
    assert chunks.add(chunk("m1", 1), (2, 1), b"y", 0.0) is not None
    assert chunks.add(chunk("m2", 1), (2, 2), b"y", 0.0) is not None


def test_incomplete_messages_expire() -> None:
    chunks = ChunkAssembler(10, 60.0)
    chunks.add(chunk("a", 0), (1, 0), b"x", 100.0)
    chunks.add(chunk("b", 0), (1, 1), b"x", 150.0)
    chunks.expire(159.0)
    assert chunks.dropped == []
    chunks.expire(160.0)
    assert chunks.dropped == [(1, 0)]
    assert chunks.add(chunk("b", 1), (1, 2), b"y", 161.0) is not None


def test_a_new_connection_begins_anew() -> None:
    chunks = ChunkAssembler(10, 0)
    chunks.add(chunk("a", 0), (1, 0), b"x", 0.0)
    chunks.clear()
    assert chunks.add(chunk("a", 0), (1, 0), b"x", 0.0) is None
    assert chunks.add(chunk("a", 1), (1, 1), b"y", 0.0) == (b"xy", [(1, 0), (1, 1)])


@pytest.mark.parametrize("messages_max", [0, -1])
def test_room_for_no_incomplete_message_is_refused(messages_max: int) -> None:
    with pytest.raises(ValueError, match=f"invalid messages_max {messages_max}: give at least 1"):
        Chunking(messages_max=messages_max)
    with pytest.raises(ValueError, match=r"invalid expire_s -1: give 0"):
        Chunking(expire_s=-1)
