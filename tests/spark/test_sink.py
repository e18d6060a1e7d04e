"""Rows written to topics: what arrives, and that each arrives once whatever happens to the tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from magnetar.client.errors import Refused
from magnetar.spark import register
from magnetar.spark.sink import producer
from magnetar.spark.sink.entries import WINDOW_BYTES
from magnetar.spark.sink.errors import BadRow, NotDeduplicated
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.producer import NameBusy
from magnetar.spark.sink.routing import HASHES
from magnetar.spark.sink.sequence_numbers import BATCHES, RowsDiffer
from magnetar.spark.sink.value_schema import value_schema
from magnetar.spark.sink.write_task import TaskIdentity, Written, write_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, IntegerType, StringType, StructField, StructType
from pyspark.taskcontext import TaskContext

from tests.integration.harness import ROOT
from tests.integration.rest import Rest
from tests.spark.servers import RECEIVE_MS_MAX, SparkServer, pulsar_client

ROW_CHARS = 8_192
WINDOW = WINDOW_BYTES // ROW_CHARS
ROWS = 2 * WINDOW + 300
CRASH_AT = 2 * WINDOW + 100
"""The first window was sent by then, and the second may be on its way. Few large rows are read quickly."""

ROWS_AT_ONCE = 50
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def topic(rest: Rest) -> str:
    """A topic whose messages are deduplicated."""
    namespace = rest.new_namespace()
    rest.do("POST", f"/namespaces/{namespace}/deduplication", True)
    return f"persistent://{namespace}/written"


@pytest.fixture
def sink(spark: SparkSession, server: SparkServer, topic: str) -> Iterator[dict[str, str]]:
    register(spark)
    # Or a task would have all of its rows before it publishes the first one.
    spark.conf.set(ARROW_ROWS, ROWS_AT_ONCE)
    yield {"service.url": server.endpoint.service_url, "topic": topic}
    spark.conf.unset(ARROW_ROWS)


def received(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """All that a topic has, by a reader."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    try:
        while reader.has_message_available():
            found.append(reader.read_next(RECEIVE_MS_MAX))
    finally:
        reader.close()
    return found


def texts(client: pulsar.Client, topic: str) -> list[str]:
    return [message.data().decode().rstrip() for message in received(client, topic)]


# With a schema


@pytest.mark.full
@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_typed_values_are_written_with_a_schema_and_read_by_all_its_versions(
    spark: SparkSession, client: pulsar.Client, server: SparkServer, sink: dict[str, str], value_format: str
) -> None:
    options = {**sink, "value.format": value_format}
    for value in (
        "named_struct('page', 'home', 'inner', named_struct('n', 1))",
        "named_struct('shop', nullif('Oslo', ''), 'page', 'cart', 'inner', named_struct('n', 2))",
    ):
        spark.sql(f"SELECT {value} AS value").write.format("magnetar").options(**options).mode(
            "append"
        ).save()
    versions = [message.schema_version() for message in received(client, sink["topic"])]
    assert versions == ["\0" * 8, "\0" * 7 + "\1"]  # the client gives text
    source = {
        "offload.address": server.offload_address,
        "service.url": sink["service.url"],
        "topic": sink["topic"],
        "value.format": "auto",
    }
    frame = spark.read.format("magnetar").options(**source).load()
    assert (
        frame.schema["value"].dataType.simpleString() == "struct<shop:string,page:string,inner:struct<n:int>>"
    )
    rows = frame.orderBy("ledger_id", "entry_id").select("value.*", "value.inner.n").collect()
    assert [(row.shop, row.page, row.n) for row in rows] == [(None, "home", 1), ("Oslo", "cart", 2)]


# One task, without Spark


def identity(batch: int = 0, query: str = "") -> TaskIdentity:
    return TaskIdentity(query or uuid.uuid4().hex, 3, batch, BATCHES)


def batches(rows: int, *, first: int = 0, crash_at: int | None = None) -> Iterator[pa.RecordBatch]:
    """Numbered rows, as Spark hands them over; ends with an error when `crash_at` is reached."""
    for start in range(first, first + rows, ROWS_AT_ONCE):
        if crash_at is not None and start >= crash_at:
            raise ConnectionAbortedError("the upstream of the task is gone")
        values = [
            f"{number:<{ROW_CHARS}}" for number in range(start, min(start + ROWS_AT_ONCE, first + rows))
        ]
        yield pa.RecordBatch.from_pydict({"value": values})


def options_of(server: SparkServer, topic: str, **more: Any) -> SinkOptions:
    return SinkOptions(service_url=server.endpoint.service_url, topic=topic, **more)


def test_a_task_that_is_tried_again_publishes_only_what_the_first_try_left(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options, task = options_of(server, topic), identity()
    with pytest.raises(ConnectionAbortedError):
        write_rows(batches(ROWS, crash_at=CRASH_AT), options, task)
    left = len(texts(client, topic))
    assert 0 < left < ROWS, "the first try published some of it"
    again = write_rows(batches(ROWS), options, task)
    assert (again.found, again.published) == (left, ROWS - left)
    assert write_rows(batches(ROWS), options, task) == Written(published=0, found=ROWS)
    assert texts(client, topic) == [str(number) for number in range(ROWS)]


@pytest.mark.full
def test_a_task_whose_own_process_is_killed_is_gone_on_with(
    server: SparkServer, client: pulsar.Client, topic: str, spark_environment: dict[str, str]
) -> None:
    options, task = options_of(server, topic), identity()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, topic, server.endpoint.service_url, task.query_id],
        env={**os.environ, **spark_environment},
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    again = write_rows(batches(ROWS), options, task)
    assert again.found > 0, "something was published before the process was killed"
    assert again.found + again.published == ROWS
    assert texts(client, topic) == [str(number) for number in range(ROWS)]


KILLED = """
import os, signal, sys
from magnetar.spark.sink.write_task import write_rows
from tests.spark import test_sink as t

def until_killed():
    yield from t.batches(t.CRASH_AT)
    os.kill(os.getpid(), signal.SIGKILL)

topic, url, query = sys.argv[1:]
options = t.SinkOptions(service_url=url, topic=topic)
write_rows(until_killed(), options, t.identity(0, query))
"""


def test_two_tries_at_once_publish_each_row_once(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options, task = options_of(server, topic), identity()
    results: list[Written] = []
    tries = [
        threading.Thread(target=lambda: results.append(write_rows(batches(ROWS), options, task)))
        for _ in range(3)
    ]
    for each in tries:
        each.start()
    for each in tries:
        each.join()
    assert [result.published + result.found for result in results] == [ROWS] * 3
    assert sum(result.published for result in results) == ROWS
    assert texts(client, topic) == [str(number) for number in range(ROWS)]


def test_a_try_that_waits_too_long_for_another_says_who_has_the_name(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    task = identity()
    holder = client.create_producer(topic, producer_name=task.producer_name)
    try:
        with pytest.raises(NameBusy, match="An earlier attempt of this task"):
            write_rows(batches(1), options_of(server, topic, busy_timeout=0.5), task)
    finally:
        holder.close()


def test_a_batch_that_comes_again_with_other_rows_is_refused_and_loses_nothing(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options, query = options_of(server, topic), uuid.uuid4().hex
    with pytest.raises(ConnectionAbortedError):
        write_rows(batches(ROWS, crash_at=CRASH_AT), options, identity(7, query))
    left = texts(client, topic)
    with pytest.raises(RowsDiffer, match="sortWithinPartitions"):
        write_rows(batches(ROWS, first=1), options, identity(7, query))
    assert texts(client, topic) == left
    write_rows(batches(ROWS), options, identity(7, query))
    write_rows(batches(10, first=ROWS), options, identity(8, query))
    assert texts(client, topic) == [str(number) for number in range(ROWS + 10)]


def test_a_batch_that_comes_again_in_another_number_of_tasks_is_refused_and_loses_nothing(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options, query = options_of(server, topic), uuid.uuid4().hex

    def task(number: int, tasks: int) -> Written:
        rows = 60 // tasks
        of_task = TaskIdentity(query, number, 4, BATCHES)
        return write_rows(batches(rows, first=number * rows), options, of_task)

    task(1, 2)  # and the query is killed before the other task
    task(0, 3)
    with pytest.raises(RowsDiffer, match="keep the number of partitions"):
        task(1, 3)
    task(2, 3)
    # As many tasks as at first go on where they were.
    assert task(0, 2) == Written(published=10, found=20)
    assert task(1, 2) == Written(published=0, found=30)
    once = {str(number): 1 for number in range(40)}
    twice = {str(number): 2 for number in range(40, 60)}
    assert Counter(texts(client, topic)) == once | twice, "what nobody can know before is there twice"


def test_a_topic_without_deduplication_is_refused_unless_duplicates_are_accepted(
    server: SparkServer, rest: Rest, client: pulsar.Client
) -> None:
    topic = f"persistent://{rest.new_namespace()}/plain"
    with pytest.raises(NotDeduplicated, match="set-deduplication --enable"):
        write_rows(batches(5), options_of(server, topic), identity())
    assert texts(client, topic) == [], "the broker said so before anything was published"
    task = identity()
    for _ in range(2):
        write_rows(batches(5), options_of(server, topic, deduplication="none"), task)
    assert Counter(texts(client, topic)) == dict.fromkeys("01234", 2)


def test_a_broker_that_does_not_say_whether_it_deduplicates_is_found_out_by_one_message(
    server: SparkServer, rest: Rest, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As brokers of Apache Pulsar, which pass over what they do not know of a producer's metadata."""
    monkeypatch.setattr(producer, "DEDUPLICATION", "not.known")
    topic = f"persistent://{rest.new_namespace()}/plain"
    with pytest.raises(NotDeduplicated, match="One message was published to find out"):
        write_rows(batches(5), options_of(server, topic), identity())
    assert texts(client, topic) == ["0"]


def test_a_schema_that_the_topic_refuses_fails_before_anything_is_published(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    def write(kind: DataType, value: Any) -> Written:
        schema = value_schema("avro", "", StructType([StructField("a", kind, nullable=False)]))
        batch = pa.RecordBatch.from_pydict({"value": [{"a": value}]})
        return write_rows([batch], options_of(server, topic), identity(), schema)

    assert write(IntegerType(), 1) == Written(1, 0)
    with pytest.raises(
        Refused, match=r"strategy FULL: .* version 0 wrote: Value\.a: int cannot be read as string"
    ):
        write(StringType(), "x")
    assert len(received(client, topic)) == 1


def test_a_topic_that_deduplicates_no_more_ends_a_task_that_comes_back_to_it(
    server: SparkServer, rest: Rest, client: pulsar.Client, topic: str
) -> None:
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]

    def with_a_change() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(ROWS)):
            if number == CRASH_AT // ROWS_AT_ONCE:
                rest.do("POST", f"/namespaces/{namespace}/deduplication", False)
                rest.do("PUT", f"/{topic.replace('://', '/')}/unload")
            yield batch

    with pytest.raises(NotDeduplicated):
        write_rows(with_a_change(), options_of(server, topic), identity())
    found = texts(client, topic)
    assert found == [str(number) for number in range(len(found))], "nothing twice"


@pytest.mark.full
def test_a_broker_that_is_killed_while_a_task_writes_is_waited_for(
    new_server: Callable[..., SparkServer],
) -> None:
    server = new_server({"brokerDeduplicationEnabled": "true"})
    topic = "persistent://public/default/killed"

    def with_a_kill() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(ROWS)):
            if number == CRASH_AT // ROWS_AT_ONCE:
                server.kill()
                server.start()
            yield batch

    options, task = options_of(server, topic), identity()
    assert write_rows(with_a_kill(), options, task) == Written(published=ROWS, found=0)
    assert write_rows(batches(ROWS), options, task) == Written(published=0, found=ROWS)
    with pulsar_client(server.endpoint) as client:
        assert texts(client, topic) == [str(number) for number in range(ROWS)]


def test_rows_are_as_large_as_the_broker_takes_and_larger_ones_are_refused_here(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    def row(payload: int, properties: int) -> pa.RecordBatch:
        kind = pa.map_(pa.string(), pa.string())
        values = pa.array([[("p", "x" * properties)]], kind)
        return pa.RecordBatch.from_pydict({"value": [b"v" * payload], "properties": values})

    most = 5 * 1024 * 1024
    options = options_of(server, topic)
    for payload, properties in ((most, 7_000), (10, 100_000)):
        write_rows([row(payload, properties)], options, identity())
    for payload, properties in ((most + 1, 0), (most, 20_000)):
        with pytest.raises(BadRow, match="Write smaller rows"):
            write_rows([row(payload, properties)], options, identity())
    found = [(len(each.data()), len(each.properties()["p"])) for each in received(client, topic)]
    assert found == [(most, 7_000), (10, 100_000)]


# Spark


def numbered(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    return spark.range(0, rows, 1, tasks).select(f.col("id").cast("string").alias("value"))


def test_columns_arrive_as_a_client_sees_them(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    frame = spark.sql(
        """
        SELECT 'one' AS value, 'k' AS key, map('b', '2', 'a', '1') AS properties,
               TIMESTAMP '2024-02-29 12:00:00.123' AS event_time, CAST('o' AS BINARY) AS ordering_key
        UNION ALL SELECT NULL, 'k', NULL, NULL, NULL
        """
    ).coalesce(1)
    frame.write.format("magnetar").options(**sink).mode("append").save()
    one, deleted = sorted(received(client, topic), key=lambda message: message.data(), reverse=True)
    assert (one.data(), one.partition_key(), one.properties()) == (b"one", "k", {"a": "1", "b": "2"})
    assert (one.event_timestamp(), one.ordering_key()) == (1_709_208_000_123, "o")
    assert (deleted.data(), deleted.partition_key(), deleted.properties()) == (b"", "k", {})


def test_keys_go_to_the_partitions_that_clients_choose_and_rows_to_their_own_topics(
    spark: SparkSession, sink: dict[str, str], rest: Rest, client: pulsar.Client, topic: str
) -> None:
    rest.do("PUT", f"/{topic.replace('://', '/')}/partitions", 3)
    other = topic + "-other"
    frame = spark.range(0, 600, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value",
        "concat('key-', id % 50) AS key",
        f"CASE WHEN id % 3 = 0 THEN '{other}' END AS topic",
    )
    frame.write.format("magnetar").options(**sink).mode("append").save()
    assert sorted(map(int, texts(client, other))) == list(range(0, 600, 3))
    found = 0
    for partition in range(3):
        for message in received(client, f"{topic}-partition-{partition}"):
            assert HASHES["java"](message.partition_key()) % 3 == partition
            found += 1
    assert found == 400


@pytest.mark.full
def test_a_task_whose_process_is_killed_writes_each_row_once(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    half = ROWS

    @f.udf("string", useArrow=False)
    def die_once(number: int) -> str:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and number % half > CRASH_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{number:<{ROW_CHARS}}"

    frame = spark.range(0, 2 * ROWS, 1, 2).select(die_once("id").alias("value"))
    frame.write.format("magnetar").options(**sink).mode("append").save()
    assert sorted(map(int, texts(client, topic))) == list(range(2 * ROWS))


def test_a_write_with_the_ids_of_one_before_publishes_nothing_again(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    """What foreachBatch does after a restart."""
    for batch, rows in (("0", 100), ("1", 200), ("1", 200)):
        options = {**sink, "query.id": f"q-{topic[-8:]}", "batch.id": batch}
        numbered(spark, rows, 2).write.format("magnetar").options(**options).mode("append").save()
    assert len(texts(client, topic)) == 300


@pytest.mark.full
def test_a_stream_that_fails_in_a_batch_and_starts_again_writes_each_row_once(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    lines, broken = tmp_path / "lines", tmp_path / "broken"
    lines.mkdir()
    for number in range(2):
        rows = range(number * ROWS, (number + 1) * ROWS)
        path = lines / f"{number}.txt"
        path.write_text("".join(f"{row}\n" for row in rows))
        os.utime(path, (number, number))  # Spark takes the oldest first.
    broken.touch()
    last_good, flag = ROWS + CRASH_AT, str(broken)

    @f.udf("string", useArrow=False)
    def break_(text: str) -> str:
        if int(text) > last_good and os.path.exists(flag):
            raise ConnectionAbortedError("the upstream of the task is gone")
        return text.ljust(ROW_CHARS)

    def run() -> None:
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
        query = (
            frame.select(break_("value").alias("value"))
            .writeStream.format("magnetar")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    with pytest.raises(Exception, match="upstream of the task is gone"):
        run()
    assert ROWS < len(texts(client, topic)) < 2 * ROWS, "the second batch was published in part"
    broken.unlink()
    run()
    assert texts(client, topic) == [str(number) for number in range(2 * ROWS)]
    (lines / "2.txt").write_text(f"{2 * ROWS}\n")
    run()
    assert texts(client, topic)[-1] == f"{2 * ROWS}"
    names = {message.producer_name() for message in received(client, topic)}
    assert len(names) == 1, "batches of a query share their producers"


def test_write_errors_have_specific_names(spark: SparkSession, sink: dict[str, str], rest: Rest) -> None:
    frame = spark.range(1)
    with pytest.raises(Exception, match="id is not a column of messages"):
        frame.write.format("magnetar").options(**sink).mode("append").save()
    writer = numbered(spark, 1, 1).write.format("magnetar")
    with pytest.raises(Exception, match="did you mean hashing"):
        writer.options(**sink, hashin="java").mode("append").save()
    plain = {**sink, "topic": f"persistent://{rest.new_namespace()}/plain"}
    with pytest.raises(Exception, match="does not deduplicate messages"):
        numbered(spark, 1, 1).write.format("magnetar").options(**plain).mode("append").save()
