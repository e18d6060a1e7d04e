"""Chunks joined in tables of stored rows: last chunks become their messages, the others go."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.spark.chunk_joining import Chunk, ChunkJoiner


def joined(table: Any, joiner: ChunkJoiner) -> Any:
    """A pyarrow.Table without chunks; tables come in their topic's order. Needs the columns of chunks."""
    pieces = pc.indices_nonzero(pc.and_(pc.is_valid(table["chunk_uuid"]), pc.is_null(table["raw_reason"])))
    keep = [True] * table.num_rows
    payloads: dict[int, bytes] = {}
    reasons: dict[int, str] = {}
    envelopes = table["entry_metadata"] if "entry_metadata" in table.column_names else None
    for row in pieces.to_pylist():
        chunk = chunk_at(table, row)
        if envelopes is None:
            keep[row] = chunk.number == chunk.total - 1  # Nobody wants what is in it.
            continue
        whole = joiner.add(chunk, envelopes[row].as_py)
        if whole is None:
            keep[row] = False
            continue
        payloads[row] = whole.payload
        if whole.reason is not None:
            reasons[row] = whole.reason
    table = _replaced(_replaced(table, "payload", payloads), "raw_reason", reasons)
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
