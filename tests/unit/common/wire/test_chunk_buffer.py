from __future__ import annotations

from magnetar.common.wire.chunk_buffer import ChunkBuffer


def test_a_chunk_on_its_own_is_handed_through_without_a_copy() -> None:
    chunk = b"frames"
    assert ChunkBuffer().add(chunk) is chunk


def test_nothing_comes_out_before_the_frame_is_complete() -> None:
    buffer = ChunkBuffer()
    buffer.keep(b"ab", needed=6)
    assert buffer.add(b"cd") == b""
    assert buffer.add(b"e") == b""
    assert buffer.size == 5
    assert buffer.add(b"fgh") == b"abcdefgh"
    assert buffer.size == 0
    assert buffer.add(b"next") == b"next"


def test_a_frame_that_comes_byte_by_byte_is_held_in_few_pieces() -> None:
    buffer = ChunkBuffer()
    buffer.keep(b"x", needed=100_001)
    for _ in range(1_500):
        buffer.add(b"x")
    joined = buffer._chunks[0]
    for _ in range(1_500, 99_999):
        buffer.add(b"x")
    assert len(buffer._chunks) < 1024 + 100
    assert buffer._chunks[0] is joined, "joined again, so the work would be quadratic"
    assert buffer.add(b"x") == b"x" * 100_001


def test_keeping_nothing_changes_nothing() -> None:
    buffer = ChunkBuffer()
    buffer.keep(b"", needed=8)
    assert buffer.size == 0
    assert buffer.add(b"whole") == b"whole"
