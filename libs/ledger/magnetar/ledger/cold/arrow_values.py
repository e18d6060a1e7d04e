"""Fast conversion of Arrow columns to Python values, several times quicker than scalar by scalar."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def values_of(column: Any) -> list[Any]:
    """Returns the values of a chunked array, as in `Rows.columns`: times are microseconds, null is None."""
    values: list[Any] = []
    for chunk in column.chunks:
        values += _values(chunk)
    return values


def binary_data(column: Any) -> Iterator[memoryview]:
    """Return all values of a binary column concatenated, in as few pieces as there are."""
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        if data is not None and len(chunk):
            bounds = _numbers(offsets, "i", chunk.offset, len(chunk) + 1)
            yield memoryview(data)[bounds[0] : bounds[-1]]


def _values(chunk: Any) -> list[Any]:
    kind, count = chunk.type, len(chunk)
    if chunk.null_count == count:
        return [None] * count
    if pa.types.is_binary(kind):
        values: list[Any] = _binaries(chunk)
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        values = _numbers(chunk.buffers()[1], "q", chunk.offset, count).tolist()
    elif pa.types.is_int32(kind):
        values = _numbers(chunk.buffers()[1], "i", chunk.offset, count).tolist()
    else:
        found: list[Any] = chunk.to_pylist()
        if pa.types.is_map(kind):
            return [None if pairs is None else tuple(pairs) for pairs in found]
        return found
    if chunk.null_count:
        for row in pc.indices_nonzero(chunk.is_null()).to_pylist():
            values[row] = None
    return values


def _numbers(buffer: Any, code: str, offset: int, count: int) -> memoryview:
    """`code` is array's: native numbers of 4 ("i") or 8 ("q") bytes."""
    size = 4 if code == "i" else 8
    return memoryview(buffer)[offset * size : (offset + count) * size].cast("B").cast(code)  # type: ignore[call-overload,no-any-return]


def _binaries(chunk: Any) -> list[Any]:
    _, offsets, data = chunk.buffers()
    if data is None:
        return [b""] * len(chunk)
    bounds = _numbers(offsets, "i", chunk.offset, len(chunk) + 1).tolist()
    start = bounds[0]
    whole = memoryview(data)[start : bounds[-1]].tobytes()
    return [whole[begin - start : end - start] for begin, end in pairwise(bounds)]
