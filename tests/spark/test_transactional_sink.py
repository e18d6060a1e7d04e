"""Rows written in transactions: each batch appears once and as a whole, whatever happens to tasks."""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from magnetar.spark import register
from magnetar.spark.sink.commit_log import TaskCommit
from magnetar.spark.sink.errors import SinkError
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.producer import InterruptedInTransaction
from magnetar.spark.sink.transactions import abort_tasks, commit_tasks, use_transactions
from magnetar.spark.sink.write_task import write_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.taskcontext import TaskContext

from tests.integration.harness import temporary_directory
from tests.spark.servers import SparkServer, pulsar_client
from tests.spark.test_sink import (
    ARROW_ROWS,
    CRASH_AT,
    ROWS,
    ROWS_AT_ONCE,
    batches,
    identity,
    options_of,
    texts,
)

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def _server() -> Iterator[SparkServer]:
    directory = temporary_directory()
    server = SparkServer(directory, {"transactionCoordinatorEnabled": "true"})
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def sink(spark: SparkSession, server: SparkServer, topic: str) -> Iterator[dict[str, str]]:
    """Options of a sink. Nothing in them names transactions: the broker has them."""
    register(spark)
    spark.conf.set(ARROW_ROWS, ROWS_AT_ONCE)
    yield {"service.url": server.endpoint.service_url, "topic": topic}
    spark.conf.unset(ARROW_ROWS)


def write(
    options: SinkOptions, rows: Iterator[pa.RecordBatch], batch: int = 0, query: str = ""
) -> TaskCommit:
    """Runs a task in a transaction; returns what is to be committed."""
    commit = write_rows(rows, options, identity(batch, query), in_transaction=True).commit
    assert commit is not None
    return commit


def numbers(rows: int) -> list[str]:
    return [str(number) for number in range(rows)]


def test_rows_appear_with_the_commit_of_their_batch(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options = options_of(server, topic)
    assert use_transactions(options)
    first = write(options, batches(ROWS))
    assert texts(client, topic) == []
    commit_tasks(options, topic[-8:], 0, [first])
    assert texts(client, topic) == numbers(ROWS)
    failed = write(options, batches(10, first=ROWS), 1)
    abort_tasks(options, [failed])
    assert texts(client, topic) == numbers(ROWS)


def test_a_batch_that_is_run_again_is_committed_once_whatever_its_rows_are(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options = options_of(server, topic)
    commit_tasks(options, topic[-8:], 3, [write(options, batches(50), 3)])
    commit_tasks(options, topic[-8:], 3, [write(options, batches(70), 3)])
    assert texts(client, topic) == numbers(50)
    commit_tasks(options, topic[-8:], 4, [write(options, batches(20, first=50), 4)])
    assert texts(client, topic) == numbers(70)
    with pytest.raises(SinkError, match="another query"):
        commit_tasks(options, topic[-8:], 3, [write(options, batches(5), 3)])
    assert texts(client, topic) == numbers(70)


def test_a_task_that_fails_leaves_nothing_and_the_next_one_publishes_all(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options = options_of(server, topic)
    with pytest.raises(ConnectionAbortedError):
        write(options, batches(ROWS, crash_at=CRASH_AT))
    commit_tasks(options, topic[-8:], 0, [write(options, batches(ROWS))])
    assert texts(client, topic) == numbers(ROWS)


def test_a_batch_that_takes_longer_than_its_transactions_says_so(
    server: SparkServer, client: pulsar.Client, topic: str
) -> None:
    options = options_of(server, topic, transaction_timeout=0.2)
    late = write(options, batches(10))
    time.sleep(1.0)  # five times the timeout
    with pytest.raises(SinkError, match=r"transaction\.timeout"):
        commit_tasks(options, topic[-8:], 0, [late])
    commit_tasks(options, topic[-8:], 0, [write(options_of(server, topic), batches(10))])
    assert texts(client, topic) == numbers(10)


@pytest.mark.parametrize("deduplicated", [False, True])
def test_a_broker_that_is_killed_while_a_task_writes(server: SparkServer, deduplicated: bool) -> None:
    namespace = server.rest.new_namespace()
    server.rest.do("POST", f"/namespaces/{namespace}/deduplication", deduplicated)
    topic = f"persistent://{namespace}/killed"

    def with_a_kill() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(ROWS)):
            if number == CRASH_AT // ROWS_AT_ONCE:
                server.kill()
                server.start()
            yield batch

    options, query = options_of(server, topic), uuid.uuid4().hex
    try:
        commit = write(options, with_a_kill(), query=query)
    except InterruptedInTransaction:
        if deduplicated:
            raise
        commit = write(options, batches(ROWS), query=query)
    commit_tasks(options, query, 0, [commit])
    with pulsar_client(server.endpoint) as client:
        assert texts(client, topic) == numbers(ROWS)


# Spark


def test_a_write_whose_task_is_killed_appears_once(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str
) -> None:
    @f.udf("string", useArrow=False)
    def die_once(number: int) -> str:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() == 0 and number == 2 * 300 - 50:
            os.kill(os.getpid(), signal.SIGKILL)
        return str(number)

    frame = spark.range(0, 2 * 300, 1, 2).select(die_once("id").alias("value"))
    # What the killed task has published blocks readers until its transaction times out; those of the other
    # task must live until both are done, also where the machine is busy.
    options = {**sink, "transaction.timeout": "30"}
    frame.write.format("magnetar").options(**options).mode("append").save()
    deadline = 90_000
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [int(reader.read_next(deadline).data()) for _ in range(2 * 300)]
    assert sorted(found) == list(range(2 * 300))
    assert not reader.has_message_available()
    reader.close()


def test_a_stream_that_fails_in_a_batch_and_starts_again_writes_each_row_once(
    spark: SparkSession, sink: dict[str, str], client: pulsar.Client, topic: str, tmp_path: Path
) -> None:
    lines, broken = tmp_path / "lines", tmp_path / "broken"
    lines.mkdir()
    for number in range(3):
        path = lines / f"{number}.txt"
        path.write_text("".join(f"{row}\n" for row in range(number * 100, (number + 1) * 100)))
        os.utime(path, (number, number))  # Spark takes the oldest first.
    broken.touch()
    flag = str(broken)

    @f.udf("string", useArrow=False)
    def break_(text: str) -> str:
        if int(text) == 150 and os.path.exists(flag):
            raise ConnectionAbortedError("the upstream of the task is gone")
        return text

    def run() -> Any:
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines)).repartition(2)
        query = (
            frame.select(break_("value").alias("value"))
            .writeStream.format("magnetar")
            .options(**sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return query

    with pytest.raises(Exception, match="the upstream of the task is gone"):
        run()
    assert sorted(map(int, texts(client, topic))) == list(range(100)), "no part of the second batch appears"
    broken.unlink()
    run()
    run()
    assert sorted(map(int, texts(client, topic))) == list(range(300))
