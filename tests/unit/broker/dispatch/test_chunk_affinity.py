from __future__ import annotations

from magnetar.broker.dispatch import chunk_affinity
from magnetar.broker.dispatch.chunk_affinity import ChunkAffinity


def test_later_chunks_follow_the_first_one() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    assert chunks.target("m", "a") == "a"
    chunks.delivered("m", 0, 3, "a")
    assert chunks.target("m", "b") == "a"
    chunks.delivered("m", 1, 3, "a")
    assert chunks.target("m", "b") == "a"


def test_chunk_without_its_first_goes_to_any_consumer_and_the_rest_follows() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    assert chunks.target("m", "a") == "a"
    chunks.delivered("m", 1, 3, "a")
    assert chunks.target("m", "b") == "a"


def test_the_last_chunk_ends_the_binding() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    chunks.delivered("m", 0, 2, "a")
    chunks.delivered("m", 1, 2, "a")
    assert chunks.target("m", "b") == "b"


def test_messages_of_a_consumer_that_left_start_again_elsewhere() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    chunks.delivered("m", 0, 2, "a")
    chunks.delivered("n", 0, 2, "b")
    chunks.forget("a")
    assert chunks.target("m", "b") == "b"
    assert chunks.target("n", "a") == "b"


def test_no_more_messages_are_remembered_than_the_bound() -> None:
    chunks: ChunkAffinity[str] = ChunkAffinity()
    for number in range(chunk_affinity.BOUND_MESSAGES_MAX + 1):
        chunks.delivered(str(number), 0, 2, "a")
    assert chunks.target("0", "b") == "b"
    assert chunks.target("1", "b") == "a"
