"""`read_topic`: offloaded ledgers read by Spark's own Parquet reader, the rest by the format "magnetar".

Spark then prunes columns, skips row groups and pages by time, key and id, and runs without Python for what is
offloaded. Which ledgers are read where, and where topics end, is decided once, when the frame is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.cold.layout import COLUMNS, Manifest
from magnetar.spark.data_source import register
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.native.chunk_frames import joined_chunks
from magnetar.spark.native.value_column import with_value
from magnetar.spark.rows.columns import ENCRYPTION_KEYS, TOPIC, TYPES, VALUE, chosen
from magnetar.spark.rows.values import ValuePlan
from magnetar.spark.source.cold_parts import read_manifest
from magnetar.spark.source.frame_batches import NO_MESSAGES
from magnetar.spark.source.private_keys import key_directory
from magnetar.spark.source.read_task import value_plan
from magnetar.spark.source.reading_plan import (
    ColdLedger,
    EntryRange,
    TimeBounds,
    cold_ledger,
    earlier_entries,
    spans,
)
from magnetar.spark.source.task_plan import Wanted, load_manifests
from magnetar.spark.source.topic_description import Describer, bounds_of
from magnetar.spark.source_options import SourceOptions, parse_options
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = get_logger(__name__)

_HADOOP_SCHEMES: Final = {"s3": "s3a", "gcs": "gs", "az": "abfss"}
"""Hadoop's names of schemes that fsspec names differently."""

_EVERYWHERE: Final = frozenset({"file", "hdfs"})

STORED_SCHEMA: Final = StructType([StructField(column.name, TYPES[column.type]) for column in COLUMNS])

_BATCH_INDEX_MAX: Final = 2**31 - 1

_ATTEMPT_IN_PATH: Final = "attempt=([0-9a-f]{32})/"


@dataclass(frozen=True, slots=True)
class ColdFiles:
    """The objects of one topic that Spark reads, and which rows of them count."""

    topic: str
    paths: tuple[str, ...]
    attempts: tuple[str, ...]
    start: MessageAt | None
    """None: from the beginning of these files."""
    end: MessageAt | None
    """None: to the end of these files."""
    earlier: tuple[str, ...] = ()
    """Objects before them, only read for the chunks of messages that end in them."""
    earlier_from: MessageAt = BEGINNING


def read_topic(spark: SparkSession, options: Mapping[str, Any]) -> DataFrame:
    """Topics as a frame. `options` are those of the format "magnetar" for reading.

    Where encrypted entries are to be opened, topics that have any raw rows are read by that format alone.
    Raises BadOption, TopicNotFound, and what brokers and object stores answer.
    """
    given = {name: _text(value) for name, value in options.items()}
    parsed = parse_options(given)
    values = value_plan(parsed)
    names = chosen(parsed.columns, value=values.has_column)
    times = TimeBounds(start_ms=parsed.starting_time_ms, end_ms=parsed.ending_time_ms)
    opens = (
        bool(key_directory(parsed.crypto_key_dir))
        or parsed.crypto_failure != "consume"
        or ENCRYPTION_KEYS in names
    )
    files, rest, ends = _plan(parsed, times, lru_cache(partial(_hadoop_reads, spark)), opens=opens)
    register(spark)
    frames = [_tail(spark, given, rest, ends)] if rest or not files else []
    if files:
        frames.insert(0, _cold(spark, files, parsed, values, times, names))
    return reduce(lambda one, other: one.unionByName(other), (frame.select(*names) for frame in frames))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plan(
    options: SourceOptions, times: TimeBounds, readable: Callable[[str], bool], *, opens: bool
) -> tuple[list[ColdFiles], dict[str, list[int]], dict[str, MessageAt]]:
    """(files for Spark, other ledgers by topic, where each topic ends).

    `opens`: encrypted entries are opened, which Spark's own reader cannot do.
    """
    describer = Describer(options)
    try:
        described = describer.describe_all(describer.topics())
    finally:
        describer.close()
    wanted = []
    for each in described:
        only = None if options.ledgers is None else options.ledgers.get(each.topic, frozenset())
        wanted.append(Wanted(each, *bounds_of(options, each), only))
    manifests = load_manifests(wanted, times)
    files, rest = [], {}
    for want in wanted:
        paths: list[str] = []
        attempts: list[str] = []
        others: list[int] = []
        first_place = last_place = BEGINNING
        has_raw = opens and _has_raw(want, manifests)
        for ledger, first, last in spans(want.described.ledgers, want.start, want.end):
            if not times.may_hold(ledger) or (want.only is not None and ledger.ledger_id not in want.only):
                continue
            cold = cold_ledger(ledger)
            if (
                has_raw
                or cold is None
                or cold not in manifests
                or not readable(hadoop_path(cold.location, ""))
            ):
                others.append(ledger.ledger_id)
                continue
            manifest = manifests[cold]
            if not attempts:
                first_place = MessageAt(ledger.ledger_id, 0)
                begin = EntryRange(ledger.ledger_id, first, last)
            last_place = MessageAt(ledger.ledger_id, ledger.last_entry_id, _BATCH_INDEX_MAX)
            attempts.append(manifest.attempt.hex())
            paths += [
                hadoop_path(cold.location, f"{cold.path}/{part.name}")
                for part in manifest.parts
                if part.first_entry_id <= last and part.last_entry_id >= first
            ]
        if paths:
            start = want.start if want.start[:2] > first_place[:2] or want.start.batch_index > 0 else None
            end = want.end if want.end <= last_place else None
            found = ColdFiles(want.described.topic, tuple(paths), tuple(attempts), start, end)
            if options.chunks == "join":
                found = _with_earlier(found, want, begin, readable)
            files.append(found)
        if others:
            rest[want.described.topic] = others
    return files, rest, {each.described.topic: each.end for each in wanted}


def _has_raw(want: Wanted, manifests: Mapping[ColdLedger, Manifest]) -> bool:
    """Return whether any ledger to read has raw rows."""
    found = (cold_ledger(ledger) for ledger, _, _ in spans(want.described.ledgers, want.start, want.end))
    return any(cold in manifests and manifests[cold].raw_entries > 0 for cold in found if cold is not None)


def _with_earlier(
    files: ColdFiles, want: Wanted, begin: EntryRange, readable: Callable[[str], bool]
) -> ColdFiles:
    """Return the objects before its first entry in which the format "magnetar" looks for chunks."""
    paths: list[str] = []
    attempts: list[str] = []
    low = MessageAt(begin.ledger_id, begin.first_entry_id)
    for each in earlier_entries(want.described, begin):
        if each.cold is None or not readable(hadoop_path(each.cold.location, "")):
            break
        try:
            manifest = read_manifest(each.cold)
        except MagnetarError as error:
            log.warning("cannot look for earlier chunks", ledger=each.ledger_id, error=str(error))
            break
        low = MessageAt(each.ledger_id, each.first_entry_id)
        attempts.append(manifest.attempt.hex())
        paths += [
            hadoop_path(each.cold.location, f"{each.cold.path}/{part.name}")
            for part in manifest.parts
            if part.first_entry_id <= each.last_entry_id and part.last_entry_id >= each.first_entry_id
        ]
    if not paths:
        return files
    start = max(want.start, MessageAt(begin.ledger_id, begin.first_entry_id))
    others = tuple(path for path in paths if path not in files.paths)
    known = tuple(dict.fromkeys((*files.attempts, *attempts)))
    return replace(files, attempts=known, start=start, earlier=others, earlier_from=low)


def hadoop_path(location: str, path: str) -> str:
    """Return the URI of an object for Spark."""
    scheme, separator, rest = location.partition("://")
    return f"{_HADOOP_SCHEMES.get(scheme, scheme)}{separator}{rest.rstrip('/')}/{path}"


def _hadoop_reads(spark: SparkSession, location: str) -> bool:
    """Return whether Spark has the packages for a location; S3, for example, needs an extra package."""
    scheme = location.partition("://")[0]
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # Spark Connect has no JVM to query: assume the schemes that every Spark supports.
        return scheme in _EVERYWHERE
    try:
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception as error:  # py4j's, with Java's inside
        log.warning(
            "Spark cannot read the objects directly; using the format magnetar",
            scheme=scheme,
            error=str(error)[:200],
        )
        return False
    return True


def _tail(
    spark: SparkSession,
    given: Mapping[str, str],
    rest: Mapping[str, Sequence[int]],
    ends: Mapping[str, MessageAt],
) -> DataFrame:
    fixed = {name: value for name, value in given.items() if name.lower() not in ("ending", "ledgers")}
    if not any(name.lower() == "ending.time" for name in fixed):
        fixed["ending"] = json.dumps({topic: str(end) for topic, end in ends.items()})
    fixed["ledgers"] = json.dumps(rest)
    return spark.read.format("magnetar").options(**fixed).load()


def _cold(
    spark: SparkSession,
    files: Sequence[ColdFiles],
    options: SourceOptions,
    values: ValuePlan,
    times: TimeBounds,
    names: Sequence[str],
) -> DataFrame:
    stored = _rows(spark, files, [path for each in files for path in each.paths])
    stored = stored.where(f.col("raw_reason").isNull() | ~f.col("raw_reason").isin(*NO_MESSAGES))
    earlier = [path for each in files for path in each.earlier]
    alone = len(files) == 1
    if options.chunks == "join":
        is_piece = f.col("chunk_uuid").isNotNull() & f.col("raw_reason").isNull()
        pieces = stored.where(is_piece)
        if earlier:
            pieces = pieces.unionByName(_rows(spark, files, earlier).where(is_piece))
        for each in files:
            # Chunks before the start are needed: their message may end behind it.
            if each.earlier:
                pieces = pieces.where(_of_topic(each, _at_or_behind(each.earlier_from), alone))
            if each.end is not None:
                pieces = pieces.where(_of_topic(each, ~_at_or_behind(each.end), alone))
        stored = stored.where(~is_piece).unionByName(joined_chunks(pieces, options.chunk_bytes_max))
    for each in files:
        if each.start is not None:
            stored = stored.where(_of_topic(each, _at_or_behind(each.start), alone))
        if each.end is not None:
            stored = stored.where(_of_topic(each, ~_at_or_behind(each.end), alone))
    taken = f.col("broker_publish_time")
    if times.start_ms is not None:
        stored = stored.where(taken >= f.timestamp_millis(f.lit(times.start_ms)))
    if times.end_ms is not None:
        stored = stored.where(taken < f.timestamp_millis(f.lit(times.end_ms)))
    if ENCRYPTION_KEYS in names:
        stored = stored.withColumn(ENCRYPTION_KEYS, f.lit(None).cast("array<string>"))
    return with_value(spark, stored, options, values) if VALUE in names else stored


def _rows(spark: SparkSession, files: Sequence[ColdFiles], paths: Sequence[str]) -> DataFrame:
    """Rows as they are stored, with their topic: that of the attempt whose directory their file is in."""
    stored = spark.read.schema(STORED_SCHEMA).parquet(*paths)
    if len(files) == 1:
        return stored.withColumn(TOPIC, f.lit(files[0].topic))
    pairs = [(attempt, each.topic) for each in files for attempt in each.attempts]
    names = spark.createDataFrame(pairs, "attempt STRING, topic STRING")
    found = f.regexp_extract(f.col("_metadata.file_path"), _ATTEMPT_IN_PATH, 1)
    return stored.withColumn("attempt", found).join(f.broadcast(names), "attempt").drop("attempt")


def _of_topic(files: ColdFiles, condition: Column, alone: bool) -> Column:
    """Return the condition for the rows of one topic."""
    return condition if alone else (f.col(TOPIC) != files.topic) | condition


def _at_or_behind(place: MessageAt) -> Column:
    ledger, entry, index = f.col("ledger_id"), f.col("entry_id"), f.col("batch_index")
    same_entry = (entry == place.entry_id) & (index >= place.batch_index)
    return (ledger > place.ledger_id) | (
        (ledger == place.ledger_id) & ((entry > place.entry_id) | same_entry)
    )
