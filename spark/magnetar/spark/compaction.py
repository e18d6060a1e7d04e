"""The latest message of each key, as a frame; and a frame as Parquet at a location that fsspec knows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import MagnetarError
from magnetar.ledger.cold.objects import ObjectStore, open_store
from magnetar.spark.offload.scratch import scratch_directory
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType
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
"""Of messages, as far as a table of latest values needs them."""

_NEEDED: Final = "raw_reason"

_FILE_SCHEMA: Final = StructType(
    [
        StructField("name", StringType(), False),
        StructField("rows", LongType(), False),
        StructField("byte_length", LongType(), False),
    ]
)


class LocationInUse(MagnetarError):
    """There are files where the result is to go."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was written."""

    location: str
    keys: int
    files: int
    byte_length: int
    replaced: int
    """Files of an earlier run that were deleted."""


def source_columns() -> tuple[str, ...]:
    """What has to be read of a topic."""
    return (*COLUMNS, _NEEDED)


def latest_by_key(messages: DataFrame) -> DataFrame:
    """The latest message of each key; keys whose latest message has no value are left out.

    Within a topic, or partition, the latest is the one that stands last. A key that was published to several
    of them has the one that a broker took last. Messages without a key, and entries that nobody could decode,
    belong to no key. `messages` has the columns of `source_columns`.
    """
    keyed = messages.where(f.col("key").isNotNull() & f.col("raw_reason").isNull()).drop("raw_reason")
    position = f.struct("ledger_id", "entry_id", "batch_index")
    row = f.struct(*[name for name in COLUMNS if name not in ("topic", "key")])
    # Only what stands last in a topic counts; clocks decide between topics alone.
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
    ).where(~f.col("null_value"))


def check_location(location: str, *, overwrite: bool) -> list[str]:
    """The Parquet files that are there. Raises LocationInUse when one of them may not be replaced."""
    found = [each.path for each in open_store(location).list()]
    others = [path for path in found if not _is_part(path)]
    if others:
        raise LocationInUse(
            f"{location} has files that are no result of this job, such as {others[0]}: choose another "
            "location"
        )
    if found and not overwrite:
        raise LocationInUse(
            f"{location} has {len(found)} files of an earlier run: give --overwrite to have them replaced, "
            "or choose another location"
        )
    return found


def write_parquet(frame: DataFrame, location: str, run: str, replaced: list[str]) -> Compacted:
    """Write the rows as `latest-<run>-<task>.parquet`, then delete the files `replaced`.

    Python tasks write, so that every location works that offload works with.
    """
    schema = _arrow_schema(frame)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _write_file(batches, schema, location, run)

    written: list[tuple[str, int, int]] = [
        (each[0], each[1], each[2]) for each in frame.mapInArrow(write, _FILE_SCHEMA).collect()
    ]
    store = open_store(location)
    if not written:
        # Whoever queries it finds the columns, if no row.
        written = [_put(store, schema, iter(()), _name(run, 0))]
    for path in replaced:
        store.delete(path)
    return Compacted(
        location,
        sum(each[1] for each in written),
        len(written),
        sum(each[2] for each in written),
        len(replaced),
    )


def _write_file(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, location: str, run: str
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    task = TaskContext.get()
    assert task is not None, "files are written in tasks of Spark"
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return

    def all_batches() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    name, rows, size = _put(open_store(location), schema, all_batches(), _name(run, task.partitionId()))
    yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows], "byte_length": [size]})


def _put(
    store: ObjectStore, schema: pa.Schema, batches: Iterator[pa.RecordBatch], name: str
) -> tuple[str, int, int]:
    """One file, made here and put there whole: (name, rows, bytes)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    with tempfile.TemporaryDirectory(prefix="magnetar-compact-", dir=scratch_directory()) as directory:
        path = Path(directory) / name
        with pq.ParquetWriter(str(path), schema, compression="zstd", write_page_index=True) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        store.put_file(str(path), name)
        return name, rows, path.stat().st_size


def _name(run: str, task: int) -> str:
    return f"latest-{run}-{task:05d}.parquet"


def _is_part(path: str) -> bool:
    return "/" not in path and path.startswith("latest-") and path.endswith(".parquet")


def _arrow_schema(frame: DataFrame) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")
