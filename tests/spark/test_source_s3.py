"""Topics whose offloaded ledgers are at a real S3 endpoint, as tables, in both ways."""

from __future__ import annotations

from collections.abc import Iterator

import magnetar.spark
import pulsar
import pytest
from pyspark.sql import SparkSession

from tests.spark.object_stores import S3, s3_server
from tests.spark.offload_runs import run_in_session
from tests.spark.servers import SparkServer, close_ledgers, publish


@pytest.fixture
def s3(spark: SparkSession) -> Iterator[S3]:
    """An endpoint that Python tasks of the shared session find in their environment."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    with s3_server() as server:
        environment.update(server.environment)
        try:
            yield server
        finally:
            environment.clear()
            environment.update(before)


@pytest.mark.full
def test_offloaded_ledgers_at_s3_are_rows_also_where_spark_lacks_what_it_needs_for_s3(
    spark: SparkSession,
    s3: S3,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent = [f"message {number:04}".encode() for number in range(200)]
    publish(client, topic, sent[:150], batch=20)
    close_ledgers(server.rest, topic)
    wanted = ("--want", "--topic", topic, "--location", s3.location("source"))
    run_in_session(spark, capfd, server.offload_address, *wanted)
    publish(client, topic, sent[150:], batch=20)
    given = {"offload.address": server.offload_address, "topic": topic}
    magnetar.spark.register(spark)
    for frame in (
        spark.read.format("magnetar").options(**given, **{"task.bytes": "500"}).load(),
        magnetar.spark.read_topic(spark, given),
    ):
        rows = frame.orderBy("ledger_id", "entry_id", "batch_index").collect()
        assert [bytes(row.payload) for row in rows] == sent
