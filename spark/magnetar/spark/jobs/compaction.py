"""Selects the latest message of each key as a frame, and writes a frame as Parquet."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.common.errors import MagnetarError
from magnetar.ledger.cold.objects import ObjectStore, open_store
from magnetar.spark.scratch import scratch_directory
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS: Final = (
    "topic",
    "ledger_id",
    "entry_id",
    "batch_index",
    "partition",
    "publish_time",
    "event_time",
    "broker_publish_time",
    "key",
    "key_bytes",
    "properties",
    "producer_name",
    "sequence_id",
    "schema_version",
    "null_value",
    "payload",
)
"""Columns of messages that a table of latest values needs."""

_NEEDED: Final = "raw_reason"

FORMAT: Final = "magnetar-latest"

RESULT_NAME: Final = "_latest.json"
"""Marker of the last completed run; readers of the directory skip names that begin with '_'."""


class LocationInUse(MagnetarError):
    """The target of the result has files."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Counts of what was written."""

    location: str
    keys: int
    files: int
    byte_length: int
    replaced: int
    """Files of an earlier run that were deleted."""


@dataclass(frozen=True)
class _File(WriterCommitMessage):
    name: str
    rows: int
    byte_length: int


def source_columns() -> tuple[str, ...]:
    """Return the columns to read from a topic."""
    return (*COLUMNS, _NEEDED)


def latest_by_key(messages: DataFrame) -> DataFrame:
    """The latest message of each key; keys whose latest message has an empty value, or none, are left out.

    Within a topic or partition, the latest message is the last one. Across several, it is the one with the
    latest publish time. Messages without a key and undecodable entries are left out. `messages` has the
    columns of `source_columns`.
    """
    keyed = messages.where(f.col("key").isNotNull() & f.col("raw_reason").isNull()).drop("raw_reason")
    position = f.struct("ledger_id", "entry_id", "batch_index")
    row = f.struct(*[name for name in COLUMNS if name not in ("topic", "key")])
    # Position decides within a topic; clocks decide only between topics.
    last = keyed.groupBy("topic", "key").agg(f.max_by(row, position).alias("row"))
    across = f.struct(f.col("row.broker_publish_time"), f.col("topic"))
    latest = last.groupBy("key").agg(f.max_by(f.struct("topic", "row"), across).alias("latest"))
    return latest.select(
        *[
            f.col("key")
            if name == "key"
            else f.col("latest.topic").alias(name)
            if name == "topic"
            else f.col(f"latest.row.{name}").alias(name)
            for name in COLUMNS
        ]
    ).where(~f.col("null_value") & (f.length("payload") > 0))


def check_location(location: str, *, overwrite: bool) -> list[str]:
    """Return the files of an earlier run. Raises LocationInUse when one of them must not be replaced."""
    found = [each.path for each in open_store(location).list()]
    others = [path for path in found if not _is_ours(path)]
    if others:
        raise LocationInUse(
            f"{location} has files that this job did not write, such as {others[0]}: choose another location"
        )
    if found and not overwrite:
        raise LocationInUse(
            f"{location} has {len(found)} files of an earlier run: give --overwrite to have them replaced, "
            "or choose another location"
        )
    return [path for path in found if path != RESULT_NAME]


def write_parquet(frame: DataFrame, location: str, run: str, replaced: list[str]) -> Compacted:
    """Write the rows as `latest-<run>-<task>.parquet`, then delete the files `replaced`.

    Python tasks write, so that every location works that offload works with.
    """
    frame.sparkSession.dataSource.register(LatestFiles)
    frame.write.format(FORMAT).option("location", location).option("run", run).mode("append").save()
    store = open_store(location)
    result = json.loads(store.read(RESULT_NAME))
    for path in replaced:
        store.delete(path)
    files = result["files"]
    return Compacted(
        location,
        sum(each["rows"] for each in files),
        len(files),
        sum(each["byte_length"] for each in files),
        len(replaced),
    )


class LatestFiles(DataSource):
    """Writes a frame as Parquet files of one run; they are valid after `RESULT_NAME` lists them."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _FilesWriter(self.options["location"], self.options["run"], schema)


class _FilesWriter(DataSourceArrowWriter):
    def __init__(self, location: str, run: str, schema: StructType) -> None:
        self._location = location
        self._run = run
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the file of one task; attempts of a task use the same name. A task without rows writes
        none.
        """
        task = TaskContext.get()
        assert task is not None, "files are written in tasks of Spark"
        first = next((batch for batch in iterator if batch.num_rows), None)
        name = f"latest-{self._run}-{task.partitionId():05d}.parquet"
        if first is None:
            return _File(name, 0, 0)
        return _put(open_store(self._location), self._schema, chain((first,), iterator), name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [each for each in messages if isinstance(each, _File) and each.rows]
        store = open_store(self._location)
        if not files:
            # An empty result still has its columns.
            files = [_put(store, self._schema, (), f"latest-{self._run}-00000.parquet")]
        result = {
            "run": self._run,
            "files": [
                {"name": each.name, "rows": each.rows, "byte_length": each.byte_length} for each in files
            ],
        }
        store.put_bytes(RESULT_NAME, json.dumps(result, indent=1).encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        store = open_store(self._location)
        for each in list(store.list()):
            if each.path.startswith(f"latest-{self._run}-"):
                store.delete(each.path)


def _put(store: ObjectStore, schema: StructType, batches: Iterable[pa.RecordBatch], name: str) -> _File:
    """Write a file locally and upload it as a whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = to_arrow_schema(schema, timezone="UTC")
    rows = 0
    with tempfile.TemporaryDirectory(prefix="magnetar-compact-", dir=scratch_directory()) as directory:
        path = Path(directory) / name
        with pq.ParquetWriter(str(path), columns, compression="zstd", write_page_index=True) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_table(pa.Table.from_batches([batch]).cast(columns))
        store.put_file(str(path), name)
        return _File(name, rows, path.stat().st_size)


def _is_ours(path: str) -> bool:
    if path == RESULT_NAME:
        return True
    return "/" not in path and path.startswith("latest-") and path.endswith(".parquet")
