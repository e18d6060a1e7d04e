"""Stored rows made into rows of a frame: filtered, chunks joined, values decoded, columns ordered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.ledger.cold.entry_rows import ABORTED
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.rows.chunk_joiner import Chunk, ChunkJoiner, MessageKey
from magnetar.spark.rows.chunk_rows import chunk_at, joined
from magnetar.spark.rows.columns import TOPIC, VALUE
from magnetar.spark.rows.values import ValueDecoder
from magnetar.spark.source.earlier_entries import read_back
from magnetar.spark.source.encrypted_rows import EncryptedRows
from magnetar.spark.source.range_reader import ReadContext
from magnetar.spark.source.reading_plan import TopicRange, look_back
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

ROWS_MAX: Final = 20_000
"""Rows of a batch handed to Spark."""

BATCH_BYTES: Final = 16 << 20

NO_MESSAGES: Final = ("marker", ABORTED)
"""Raw reasons of entries that hold no messages: readers see nothing of them."""

LOOK_BACK_COLUMNS: Final = (
    "entry_id",
    "producer_name",
    "chunk_uuid",
    "chunk_id",
    "chunk_total",
    "payload",
    "raw_reason",
)
"""Columns of earlier rows in which chunks are searched, in the order of COLUMNS."""


class FrameBatches:
    """Makes the batches of one topic's range."""

    def __init__(
        self,
        schema: StructType,
        work: TopicRange,
        context: ReadContext,
        *,
        decoder: ValueDecoder | None,
        join_bytes_max: int | None,
        earlier: EncryptedRows | None = None,
    ) -> None:
        """`join_bytes_max`: of a message in chunks; None: chunks stay as they are. `earlier` opens encrypted
        chunks before the range, and makes LOOK_BACK_COLUMNS.
        """
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._names = schema.fieldNames()
        self._work = work
        self._context = context
        self._decoder = decoder
        self._earlier = earlier
        self._at = (0, 0)
        """Ledger and first entry of the table at hand."""
        self._joiner = None if join_bytes_max is None else ChunkJoiner(join_bytes_max, self._search)

    def batches(self, table: Any) -> Iterator[Any]:
        """A table of stored rows as pyarrow.RecordBatches; tables come in order."""
        if not table.num_rows:
            return
        self._at = table["ledger_id"][0].as_py(), table["entry_id"][0].as_py()
        table = self._chosen(table)
        if self._joiner is not None and table["chunk_uuid"].null_count < table.num_rows:
            for some in joined(table, self._joiner):
                yield from self._whole_messages(some)
        else:
            yield from self._whole_messages(table)

    def _whole_messages(self, table: Any) -> Iterator[Any]:
        table = self._of_time(table)  # Only now: a message is as old as its last chunk.
        if not table.num_rows:
            return
        whole = pa.table([self._column(table, name) for name in self._names], schema=self._arrow)
        rows = min(ROWS_MAX, max(1, whole.num_rows * BATCH_BYTES // max(whole.nbytes, 1)))
        for batch in whole.combine_chunks().to_batches(max_chunksize=rows):
            if batch.num_rows:
                yield batch

    def _chosen(self, table: Any) -> Any:
        """Without what is no message, and what lies outside of the bounds."""
        keep = pc.invert(pc.is_in(table["raw_reason"], pa.array(NO_MESSAGES)))
        bounds = _bounds(table, self._at[0], self._work.start, self._work.end)
        return table.filter(keep if bounds is None else pc.and_(keep, bounds))

    def _of_time(self, table: Any) -> Any:
        times = self._context.times
        if times.start_ms is not None:
            taken = pc.cast(table["broker_publish_time"], pa.int64())
            table = table.filter(pc.greater_equal(taken, times.start_ms * 1000))
        if times.end_ms is not None:
            taken = pc.cast(table["broker_publish_time"], pa.int64())
            table = table.filter(pc.less(taken, times.end_ms * 1000))
        return table

    def _search(self, key: MessageKey) -> Iterable[Chunk]:
        """Chunks of the message before the table that is at hand, newest first."""
        work = self._work
        before = look_back(work, *self._at)
        for table in read_back(self._look_back_context, work.topic, work.partition, before):
            mine = table.filter(pc.equal(table["chunk_uuid"], key.uuid))
            opened = [mine] if self._earlier is None else self._earlier.tables(work.topic, mine)
            for some in reversed(list(opened)):
                for row in reversed(range(some.num_rows)):
                    if some["raw_reason"][row].as_py() is None:
                        yield chunk_at(some, row)

    @cached_property
    def _look_back_context(self) -> ReadContext:
        columns = LOOK_BACK_COLUMNS if self._earlier is None else tuple(self._earlier.stored_columns)
        return ReadContext(service=self._context.service, columns=columns)

    def _column(self, table: Any, name: str) -> Any:
        field = self._arrow.field(name)
        if name == TOPIC:
            return pa.repeat(pa.scalar(self._work.topic), table.num_rows)
        if name == VALUE:
            assert self._decoder is not None, "a frame with values has a decoder"
            return self._decoder.decode(table)
        column = table[name]
        return column if column.type.equals(field.type) else column.cast(field.type)


def _bounds(table: Any, ledger_id: int, start: MessageAt, end: MessageAt) -> Any | None:
    """Which rows of a ledger lie between two places; None: all."""
    keep = None
    if ledger_id == start.ledger_id:
        keep = _at_or_behind(table, start)
    if ledger_id == end.ledger_id:
        before = pc.invert(_at_or_behind(table, end))
        keep = before if keep is None else pc.and_(keep, before)
    return keep


def _at_or_behind(table: Any, place: MessageAt) -> Any:
    entry_ids = table["entry_id"]
    same = pc.and_(
        pc.equal(entry_ids, place.entry_id), pc.greater_equal(table["batch_index"], place.batch_index)
    )
    return pc.or_(pc.greater(entry_ids, place.entry_id), same)
