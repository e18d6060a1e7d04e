"""Chunks joined in a frame that Spark reads itself, with a shuffle of the chunks alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from magnetar.spark.rows.chunk_joiner import Chunk, ChunkJoiner, MessageKey
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame

_WHOLES: Final = "ARRAY<STRUCT<at: INT, payload: BINARY, reason: STRING>>"
_ARROW_WHOLES: Final = pa.list_(
    pa.struct([("at", pa.int32()), ("payload", pa.binary()), ("reason", pa.string())])
)
_NEEDED: Final = ("producer_name", "chunk_uuid", "chunk_id", "chunk_total", "payload", "entry_metadata")


def joined_chunks(pieces: DataFrame, bytes_max: int) -> DataFrame:
    """The messages whose last chunks are among rows that all are chunks; the frame has the column topic."""

    def join(messages: pa.Array) -> pa.Array:
        return pa.array([_wholes(rows, bytes_max) for rows in messages.to_pylist()], type=_ARROW_WHOLES)

    # Without texts for annotations, as Spark looks at these.
    join.__annotations__ = {"messages": pa.Array, "return": pa.Array}
    names = pieces.columns
    row = f.struct(*names)
    rows = f.array_sort(f.collect_list(row), _in_order)
    needed = f.transform(f.col("rows"), lambda each: f.struct(*(each[name].alias(name) for name in _NEEDED)))
    found: Column = cast(Any, arrow_udf)(join, _WHOLES)(needed)
    messages = (
        pieces.groupBy("topic", "producer_name", "chunk_uuid")
        .agg(rows.alias("rows"))
        .withColumn("wholes", found)
        .select("rows", f.explode("wholes").alias("whole"))
        .select(f.element_at("rows", f.col("whole.at") + 1).alias("row"), "whole")
    )
    replaced = {"payload": f.col("whole.payload"), "raw_reason": f.col("whole.reason")}
    return messages.select(*(replaced.get(name, f.col("row")[name]).alias(name) for name in names))


def _in_order(one: Column, other: Column) -> Column:
    """Return whether `one` comes before `other` in the topic; Spark cannot compare rows with maps."""
    earlier = (one["ledger_id"] < other["ledger_id"]) | (
        (one["ledger_id"] == other["ledger_id"]) & (one["entry_id"] < other["entry_id"])
    )
    return f.when(earlier, -1).otherwise(1)


def _wholes(rows: list[dict[str, Any]], bytes_max: int) -> list[dict[str, Any]]:
    """The messages that end among the chunks of one name, in order: one that was sent again ends twice."""
    joiner = ChunkJoiner(bytes_max, _nowhere)
    found = []
    for number, row in enumerate(rows):
        producer, uuid, chunk_id, total, payload, envelope = (row[name] for name in _NEEDED)
        whole = joiner.add(Chunk(producer or "", uuid, chunk_id, total, payload or b""), lambda e=envelope: e)  # type: ignore[misc]
        if whole is not None:
            found.append({"at": number, "payload": whole.payload, "reason": whole.reason})
    return found


def _nowhere(key: MessageKey) -> Iterable[Chunk]:
    return ()
