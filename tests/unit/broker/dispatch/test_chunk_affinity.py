from __future__ import annotations

from magnetar.broker.dispatch import chunk_affinity
from magnetar.broker.dispatch.chunk_affinity import ChunkAffinity


def test_later_chunks_follow_the_first_one() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    assert chunks.target("m", 0, "a") == "a"
    chunks.delivered("m", 0, 3, "a")
    assert chunks.target("m", 1, "b") == "a"
    chunks.delivered("m", 1, 3, "a")
    assert chunks.target("m", 2, "b") == "a"


def test_a_chunk_whose_first_one_is_unknown_has_no_target() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    assert chunks.target("m", 1, "a") is None


def test_the_last_chunk_ends_the_binding() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    chunks.delivered("m", 0, 2, "a")
    chunks.delivered("m", 1, 2, "a")
    assert chunks.target("m", 0, "b") == "b"


def test_messages_of_a_consumer_that_left_start_again_elsewhere() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    chunks.delivered("m", 0, 2, "a")
    chunks.delivered("n", 0, 2, "b")
    chunks.forget("a")
    assert chunks.target("m", 0, "b") == "b"
    assert chunks.target("n", 1, "a") == "b"


def test_no_more_messages_are_remembered_than_the_bound() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    for number in range(chunk_affinity.BOUND_MESSAGES_MAX + 1):
        chunks.delivered(str(number), 0, 2, "a")
    assert chunks.target("0", 1, "b") is None
    assert chunks.target("1", 1, "b") == "a"
