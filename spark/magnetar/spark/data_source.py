"""`spark.read.format("magnetar")`: reads topics as tables, offloaded ledgers and all others.

    from magnetar.spark import register
    register(spark)
    spark.read.format("magnetar").option("topic", "my-topic").load()

A read sees the messages that there are when it is planned. Ledgers that were offloaded are read from their
Parquet objects, the others from bookies or brokers, in parallel by ranges of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from magnetar.spark.rows.columns import VALUE, chosen, frame_ddl, frame_schema
from magnetar.spark.source.pushed_filters import PushedFilters
from magnetar.spark.source.read_task import ReadTask, RowMaker, value_plan
from magnetar.spark.source.reading_plan import TimeBounds
from magnetar.spark.source.task_plan import Wanted, plan_tasks
from magnetar.spark.source.topic_description import Describer, bounds_of
from magnetar.spark.source_options import parse_options
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

NAME = "magnetar"


def register(spark: SparkSession) -> None:
    """Register the format "magnetar" with a session. Idempotent."""
    spark.dataSource.register(MagnetarDataSource)


class MagnetarDataSource(DataSource):
    """The format "magnetar": reads and writes topics, in batches and streams."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType | str:
        """Return the columns that the options choose. Raises BadOption and brokers' errors."""
        options = parse_options(self.options)
        values = value_plan(options)
        names = chosen(options.columns, value=values.has_column)
        if VALUE in names and values.type is None:
            return frame_ddl(names, values.ddl)
        return frame_schema(names, values.type)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        kind = PushingReader if options.pushdown else TopicReader
        return kind(RowMaker.of(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from magnetar.spark.stream.reader import TopicStreamReader

        return TopicStreamReader(RowMaker.of(parse_options(self.options), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from magnetar.spark.sink import writers

        return writers.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from magnetar.spark.sink import writers

        return writers.stream_writer(self.options, schema, overwrite)


class TopicReader(DataSourceReader):
    """Reads topics as they are when the query is planned."""

    def __init__(self, rows: RowMaker) -> None:
        self._rows = rows
        self._filters = PushedFilters()
        options = rows.options
        self._times = TimeBounds(start_ms=options.starting_time_ms, end_ms=options.ending_time_ms)

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task. Raises TopicNotFound, BadOption, and errors of brokers and object
        stores.
        """
        options = self._rows.options
        times = self._filters.times(self._times)
        describer = Describer(options)
        try:
            names = [name for name in describer.topics() if self._filters.may_hold_topic(name)]
            described = describer.describe_all(names)
        finally:
            describer.close()
        wanted = []
        for each in described:
            only = None if options.ledgers is None else options.ledgers.get(each.topic, frozenset())
            wanted.append(Wanted(each, *bounds_of(options, each), only))
        tasks = plan_tasks(
            wanted,
            task_bytes=options.task_bytes,
            joins=self._rows.joins,
            times=times,
        )
        return [ReadTask(work, times) for work in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, ReadTask):  # Spark makes an empty one where there is nothing.
            for work in partition.value:
                yield from self._rows.batches(work, partition.times, self._filters)


class PushingReader(TopicReader):
    """A TopicReader that receives Spark's filters. See the option pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = PushedFilters(tuple(filters))
        return filters
