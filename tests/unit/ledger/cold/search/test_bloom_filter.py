"""Bloom filters of Parquet: values that were written may be there, most others are not."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from magnetar.ledger.cold.search.bloom_filter import may_contain, xxh64


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_hashes_are_those_of_the_specification(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected


def filter_of(values: list[str]) -> bytes:
    """The Bloom filter that pyarrow writes for a column of these values."""
    sink = io.BytesIO()
    options = {"key": {"ndv": len(values), "fpp": 0.05}}
    pq.write_table(pa.table({"key": values}), sink, bloom_filter_options=options)
    column = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
    start = column.bloom_filter_offset
    return sink.getvalue()[start : start + column.bloom_filter_length]


def test_written_values_may_be_there_and_most_others_are_not() -> None:
    lengths = (1, 5, 9, 17, 33, 70)
    written = [f"{number:x}".rjust(lengths[number % 6], "k") for number in range(5_000)]
    data = filter_of(written)
    reads: list[int] = []

    def read(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    assert all(may_contain(read, (xxh64(value.encode()),)) for value in written)
    reads.clear()
    others = [f"other {number}" for number in range(1_000)]
    wrong = sum(may_contain(read, (xxh64(value.encode()),)) for value in others)
    assert wrong < 120, "one in twenty is what the writer asks for"
    assert sum(reads) < 60 * len(others), "a header and a block, whatever the size of the filter"
    assert may_contain(read, (xxh64(b"other 1"), xxh64(written[0].encode()))), "one of several values"


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x16" * 40, b"\x15\x80\x80\x80\x80\x80\x80", bytes(64)])
def test_a_filter_of_an_unknown_kind_may_contain_anything(data: bytes) -> None:
    assert may_contain(lambda offset, length: data[offset : offset + length], (1,))


def test_a_filter_that_is_cut_may_contain_anything() -> None:
    data = filter_of(["a", "b"])[:30]
    assert may_contain(lambda offset, length: data[offset : offset + length], (xxh64(b"z"),))
