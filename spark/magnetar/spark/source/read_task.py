"""Tasks of the source, and how they make rows of a frame, for batches and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from magnetar.spark.rows.columns import ENCRYPTION_KEYS, VALUE, check_schema, chosen, stored_columns
from magnetar.spark.rows.values import ValueDecoder, ValuePlan, plan_values, type_in
from magnetar.spark.source.encrypted_rows import EncryptedRows
from magnetar.spark.source.frame_batches import LOOK_BACK_COLUMNS, FrameBatches
from magnetar.spark.source.pushed_filters import PushedFilters
from magnetar.spark.source.range_reader import ReadContext, read_range
from magnetar.spark.source.reading_plan import NO_TIMES, TimeBounds, TopicLedgers, TopicRange
from magnetar.spark.source.schema_versions import older_definitions, schemas_of
from magnetar.spark.source.topic_description import Describer
from magnetar.spark.source_options import SourceOptions
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType


class ReadTask(InputPartition):
    """A range for one task, with its time bounds."""

    def __init__(self, work: tuple[TopicRange, ...], times: TimeBounds = NO_TIMES) -> None:
        super().__init__(work)
        self.times = times


class RowMaker:
    """Makes rows of a frame in tasks; pickles."""

    def __init__(self, options: SourceOptions, schema: StructType, values: ValuePlan) -> None:
        self.options = options
        self.schema = schema
        self._values = values

    @staticmethod
    def of(options: SourceOptions, schema: StructType) -> RowMaker:
        """Raises BadOption for a schema that the source cannot fill."""
        check_schema(schema)
        chosen(schema.fieldNames(), value=options.value_format != "raw")
        values = value_plan(options) if VALUE in schema.fieldNames() else ValuePlan("raw")
        return RowMaker(options, schema, values)

    @property
    def joins(self) -> bool:
        return self.options.chunks == "join"

    def batches(self, work: TopicRange, times: TimeBounds, filters: PushedFilters) -> Iterator[Any]:
        """pyarrow.RecordBatches of a range of a topic. Raises MessagesLost, ValueUnfit, what is retriable."""
        options = self.options
        timed = times.start_ms is not None or times.end_ms is not None
        names = self.schema.fieldNames()
        columns = stored_columns(names, joins=self.joins, times=timed)
        encrypted = EncryptedRows(options, columns, names=ENCRYPTION_KEYS in names)
        context = ReadContext(
            service=options.service,
            columns=tuple(encrypted.stored_columns),
            times=times,
            fail_on_data_loss=options.fail_on_data_loss,
            may_match=filters.row_groups(joins=self.joins),
            opens_raw=encrypted.decrypts,
        )
        maker = FrameBatches(
            self.schema,
            work,
            context,
            decoder=self._decoder(work.topic),
            earlier=EncryptedRows(options, LOOK_BACK_COLUMNS, names=False),
            join_bytes_max=options.chunk_bytes_max if self.joins else None,
        )
        for each in work.ranges:
            for table in read_range(context, work.topic, work.partition, each):
                for opened in encrypted.tables(work.topic, table):
                    yield from maker.batches(opened)

    def _decoder(self, topic: str) -> ValueDecoder | None:
        kind = type_in(self.schema)
        if kind is None:
            return None
        return ValueDecoder(self._values, kind, schemas_of(self.options, topic))


def value_plan(options: SourceOptions) -> ValuePlan:
    """Plan how values are decoded, asking a broker for the schemas where that matters. Raises BadOption,
    ClientError.
    """
    describer = Describer(options)
    found: list[TopicLedgers] = []

    def newest() -> tuple[str, bytes]:
        described = describer.topic_with_schema()
        if described is None:
            return "", b""
        found.append(described)
        return described.schema_type, described.schema

    def older(schema_type: str) -> list[bytes]:
        return older_definitions(options, found[0].topic, schema_type)

    try:
        return plan_values(options, newest, older)
    finally:
        describer.close()
