"""Chunks joined in a frame of stored rows that Spark reads itself: by a shuffle of the chunks alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.spark.chunk_joining import Chunk, ChunkJoiner, MessageKey
from magnetar.spark.chunk_rows import joined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame


def joined_chunks(pieces: DataFrame, bytes_max: int) -> DataFrame:
    """The messages whose last chunks are among rows that all are chunks; the frame has the column topic."""

    def join(table: Any) -> Any:
        in_order = table.sort_by([("ledger_id", "ascending"), ("entry_id", "ascending")])
        return joined(in_order, ChunkJoiner(bytes_max, _nowhere))

    return pieces.groupBy("topic", "producer_name", "chunk_uuid").applyInArrow(join, pieces.schema)


def _nowhere(key: MessageKey) -> Iterable[Chunk]:
    return ()
