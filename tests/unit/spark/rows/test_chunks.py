"""Messages in chunks, put together whatever lies between their chunks, within bounds."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from magnetar.common.wire.pulsar_pb2 import NONE, ZLIB, CompressionType, MessageMetadata
from magnetar.ledger.cold.entry_envelope import encode_envelope
from magnetar.spark.rows.chunk_joiner import INCOMPLETE, WAITING_MAX, Chunk, ChunkJoiner, MessageKey, Whole
from magnetar.spark.rows.chunk_rows import joined
from magnetar.spark.stream.open_chunks import LOOKED_AT, SeenEntry, first_needed


def envelope(compression: CompressionType.ValueType = NONE, size: int = 0) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, uncompressed_size=size)
    if compression != NONE:
        metadata.compression = compression
    return encode_envelope(compression, 0, 1, metadata.SerializeToString())


def chunks_of(payload: bytes, count: int, uuid: str = "u", producer: str = "p") -> list[Chunk]:
    size = -(-len(payload) // count)
    return [Chunk(producer, uuid, n, count, payload[n * size : (n + 1) * size]) for n in range(count)]


def nothing(key: MessageKey) -> Iterable[Chunk]:
    return ()


def join(joiner: ChunkJoiner, chunks: Iterable[Chunk], env: bytes | None = None) -> Iterator[Whole]:
    for chunk in chunks:
        whole = joiner.add(chunk, lambda: envelope() if env is None else env)
        if whole is not None:
            yield whole


def test_interleaved_messages_are_joined_where_their_last_chunks_are() -> None:
    chance = random.Random(5)
    messages = {f"u{n}": bytes([n]) * (100 + n) for n in range(20)}
    queues = [chunks_of(payload, 1 + n % 5, uuid) for n, (uuid, payload) in enumerate(messages.items())]
    order: list[Chunk] = []
    while any(queues):
        queue = chance.choice([each for each in queues if each])
        order.append(queue.pop(0))
    found = list(join(ChunkJoiner(1 << 20, nothing), order))
    ends = [chunk.uuid for chunk in order if chunk.number == chunk.total - 1]
    assert found == [Whole(messages[uuid], None) for uuid in ends]


def test_chunks_before_the_range_are_looked_for() -> None:
    asked: list[MessageKey] = []
    chunks = chunks_of(b"0123456789", 5)

    def search(key: MessageKey) -> Iterator[Chunk]:
        asked.append(key)
        yield from reversed(chunks[:3])
        raise AssertionError("the first chunk was there")

    assert list(join(ChunkJoiner(100, search), chunks[3:])) == [Whole(b"0123456789", None)]
    assert asked == [MessageKey("p", "u")]


def test_a_message_whose_chunks_are_gone_gives_its_last_chunk_and_says_so() -> None:
    chunks = chunks_of(b"0123456789", 5)
    (found,) = join(ChunkJoiner(100, nothing), chunks[2:])
    assert found.payload == b"89"
    assert found.reason is not None
    assert found.reason.startswith(INCOMPLETE)
    assert "2 of 5" in found.reason


def test_a_message_that_was_sent_again_from_its_first_chunk_is_whole() -> None:
    chunks = chunks_of(b"0123456789", 5)
    again = [*chunks[:3], *chunks[:2], chunks[1], *chunks[2:]]
    assert list(join(ChunkJoiner(100, nothing), again)) == [Whole(b"0123456789", None)]


def test_chunks_of_a_compressed_message_are_decompressed_as_one() -> None:
    payload = b"text " * 100
    packed = envelope(ZLIB, len(payload))
    chunks = chunks_of(zlib.compress(payload), 3)
    assert list(join(ChunkJoiner(1000, nothing), chunks, packed)) == [Whole(payload, None)]
    (broken,) = join(ChunkJoiner(1000, nothing), chunks_of(b"no zlib at all", 3), packed)
    assert broken.reason is not None


def test_pending_chunks_are_bounded_in_bytes_and_messages() -> None:
    joiner = ChunkJoiner(50, nothing)
    (large,) = join(joiner, chunks_of(b"x" * 60, 6, "large"))
    assert large.reason is not None
    assert "chunk.bytes.max" in large.reason
    first = chunks_of(b"y" * 20, 2, "first")
    assert list(join(joiner, [first[0]])) == []
    for number in range(10):
        list(join(joiner, chunks_of(b"z" * 20, 2, f"other{number}")[:1]))
    assert joiner._bytes <= 50
    (forgotten,) = join(joiner, [first[1]])
    assert forgotten.reason is not None
    many = ChunkJoiner(1 << 30, nothing)
    for number in range(WAITING_MAX + 100):
        list(join(many, chunks_of(b"ab", 2, f"m{number}")[:1]))
    assert len(many._waiting) == WAITING_MAX


@pytest.mark.parametrize("size_max", [1, 100, 1 << 20])
def test_tables_of_joined_messages_are_bounded_and_hold_every_row_once(size_max: int) -> None:
    chunks = [each for n in range(10) for each in chunks_of(bytes([65 + n]) * 60, 3, f"u{n}")]
    rows: list[Chunk | None] = [None, *chunks[:15], None, None, *chunks[15:], chunks[1], None]
    table = pa.table(
        {
            "entry_id": pa.array(range(len(rows))),
            "producer_name": pa.array(["p"] * len(rows)),
            "chunk_uuid": pa.array([row and row.uuid for row in rows], pa.string()),
            "chunk_id": pa.array([None if row is None else row.number for row in rows], pa.int32()),
            "chunk_total": pa.array([row and row.total for row in rows], pa.int32()),
            "payload": pa.array([b"alone" if row is None else row.payload for row in rows], pa.binary()),
            "raw_reason": pa.array([None] * len(rows), pa.string()),
            "entry_metadata": pa.array([envelope()] * len(rows), pa.binary()),
        }
    )
    tables = list(joined(table, ChunkJoiner(1 << 20, nothing), size_max))
    found = [row for some in tables for row in some.to_pylist()]
    last = [row for row, chunk in enumerate(rows) if chunk is None or chunk.number == 2]
    assert [row["entry_id"] for row in found] == last
    whole = [row["payload"] for row in found if row["chunk_uuid"] is not None]
    assert whole == [bytes([65 + n]) * 60 for n in range(10)]
    assert all(sum(map(len, some["payload"].to_pylist()[:-1])) < size_max + 20 for some in tables)
    assert (len(tables) == 1) == (size_max > 600)
    # Where nobody wants payloads, only their rows are chosen.
    names = [name for name in table.column_names if name not in ("payload", "entry_metadata")]
    (chosen,) = joined(table.select(names), ChunkJoiner(1 << 20, nothing), size_max)
    assert chosen["entry_id"].to_pylist() == last


def seen(
    entry_id: int, uuid: str | None = None, number: int | None = None, total: int | None = None
) -> SeenEntry:
    return SeenEntry(1, entry_id, "p", uuid, number, total)


@pytest.mark.parametrize(
    ("newest_first", "expected"),
    [
        ([], None),
        ([seen(5), seen(4)], None),
        ([seen(5, "a", 1, 2), seen(4, "a", 0, 2)], None),
        ([seen(6), seen(5, "a", 1, 3), seen(4, "b", 1, 2), seen(3, "a", 0, 3), seen(2, "b", 0, 2)], 3),
        ([seen(5, "a", 1, 3), *(seen(4 - n) for n in range(3)), seen(1, "a", 0, 3), seen(0, "c", 0, 9)], 0),
        ([*(seen(99 - n) for n in range(LOOKED_AT)), seen(1, "a", 0, 3)], None),
        (
            [
                seen(99, "a", 1, 3),
                *(seen(98 - n) for n in range(LOOKED_AT)),
                seen(1, "a", 0, 3),
                seen(0, "b", 0, 3),
            ],
            1,
        ),
    ],
)
def test_a_place_is_held_before_messages_that_it_cuts(
    newest_first: list[SeenEntry], expected: int | None
) -> None:
    found = first_needed(newest_first)
    assert (None if found is None else found.entry_id) == expected
