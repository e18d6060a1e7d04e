"""Chunks joined in tables of stored rows: a last chunk becomes its message, the others are removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.spark.rows.chunk_joiner import Chunk, ChunkJoiner

JOINED_BYTES: Final = 32 << 20


def joined(table: Any, joiner: ChunkJoiner, size_max: int = JOINED_BYTES) -> Iterator[Any]:
    """The same rows without chunks, a table anew behind `size_max` bytes of joined messages: last chunks are
    small, and what they end may be many times what was read.

    Tables of one topic come in its order. Needs the columns of chunks.
    """
    pieces = pc.indices_nonzero(pc.and_(pc.is_valid(table["chunk_uuid"]), pc.is_null(table["raw_reason"])))
    envelopes = table["entry_metadata"] if "entry_metadata" in table.column_names else None
    begin = 0
    made = _Joined()
    for row in pieces.to_pylist():
        chunk = chunk_at(table, row)
        if envelopes is None:  # No requested column needs its content.
            if chunk.number != chunk.total - 1:
                made.dropped.add(row - begin)
            continue
        whole = joiner.add(chunk, envelopes[row].as_py)
        if whole is None:
            made.dropped.add(row - begin)
            continue
        made.payloads[row - begin] = whole.payload
        made.size += len(whole.payload)
        if whole.reason is not None:
            made.reasons[row - begin] = whole.reason
        if made.size >= size_max:
            yield made.applied(table.slice(begin, row + 1 - begin))
            begin, made = row + 1, _Joined()
    if begin < table.num_rows:
        yield made.applied(table.slice(begin))


@dataclass(slots=True)
class _Joined:
    """The replacements of rows, by their number."""

    dropped: set[int] = field(default_factory=set)
    payloads: dict[int, bytes] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    size: int = 0

    def applied(self, table: Any) -> Any:
        table = _replaced(_replaced(table, "payload", self.payloads), "raw_reason", self.reasons)
        if not self.dropped:
            return table
        keep = [row not in self.dropped for row in range(table.num_rows)]
        return table.filter(pa.array(keep, type=pa.bool_()))


def chunk_at(table: Any, row: int) -> Chunk:
    """The chunk of a row that is one."""
    return Chunk(
        table["producer_name"][row].as_py() or "",
        table["chunk_uuid"][row].as_py(),
        table["chunk_id"][row].as_py(),
        table["chunk_total"][row].as_py(),
        (table["payload"][row].as_py() or b"") if "payload" in table.column_names else b"",
    )


def _replaced(table: Any, name: str, values: dict[int, Any]) -> Any:
    if not values or name not in table.column_names:
        return table
    column = table[name].to_pylist()
    for row, value in values.items():
        column[row] = value
    at = table.column_names.index(name)
    field = table.schema.field(name)
    return table.set_column(at, field, pa.array(column, type=field.type))
