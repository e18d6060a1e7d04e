"""Offload to a real S3 endpoint and back: job, broker and DuckDB meet only in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pulsar
import pytest
from magnetar.ledger.cold.layout import MANIFEST_NAME
from magnetar.ledger.cold.objects import open_store
from pyspark.sql import SparkSession

from tests.integration.harness import eventually
from tests.spark.object_stores import S3, s3_server
from tests.spark.offload_runs import (
    complete_ledgers,
    ledgers_of,
    manifest_of,
    run_in_session,
    told,
    unnamed,
)
from tests.spark.servers import SparkServer, close_ledgers, publish, pulsar_client, read_all

MESSAGES = 2_000
LETS_GO_AT_ONCE = {
    "managedLedgerOffloadDeletionLagMs": "0",
    "magnetarOffloadRefreshIntervalSeconds": "1",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def spark_with_s3(spark: SparkSession, s3: S3) -> Iterator[SparkSession]:
    """Python tasks of the shared session find the endpoint in their environment."""
    environment = spark.sparkContext.environment
    environment.update(s3.environment)
    yield spark
    for name in s3.environment:
        del environment[name]


@pytest.mark.full
def test_history_goes_to_s3_leaves_the_broker_and_is_served_from_there(
    spark_with_s3: SparkSession,
    s3: S3,
    new_server: Callable[..., SparkServer],
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = new_server(LETS_GO_AT_ONCE, environment=s3.environment)
    location = s3.location("history")
    sent = [f"line {number}".encode() * (number % 5 + 1) for number in range(MESSAGES)]
    with pulsar_client(server.endpoint) as client:
        publish(client, topic, sent, message=lambda number: {"partition_key": str(number % 3)})
        before = [(each.message_id().serialize(), each.data()) for each in read_all(client, topic, MESSAGES)]
        close_ledgers(server.rest, topic)
        wanted = ("--want", "--topic", topic, "--location", location, "--part-mb", "0.02")
        ran = run_in_session(spark_with_s3, capfd, server.offload_address, *wanted)
        assert [record["result"] for record in ran.records] == ["offloaded"]
        (ledger,) = complete_ledgers(server.offload_address, topic)
        manifest = manifest_of(ledger)
        assert len(manifest.parts) > 1
        listed = s3.client().list_objects_v2(Bucket=s3.bucket, Prefix="history/public/")["Contents"]
        assert len(listed) == len(manifest.parts) + 1
        assert sum(each["Size"] for each in listed) == ledger.offload.object_bytes

        read_all(client, topic, 1)  # loads the topic: its owner verifies the objects, then lets go
        eventually(
            lambda: bool(ledgers_of(server.offload_address, topic)[0].offload.left_bookies_ms),
            "the broker has let go of the offloaded ledger",
        )
        server.restart()
    with pulsar_client(server.endpoint) as client:
        after = [(each.message_id().serialize(), each.data()) for each in read_all(client, topic, MESSAGES)]
    assert after == before
    assert [payload for _, payload in after] == sent

    files = [f"s3://{s3.bucket}/history/{ledger.offload.path}/{part.name}" for part in manifest.parts]
    assert rows_of_duckdb(s3, files) == {
        str(key): sum(1 for number in range(MESSAGES) if number % 3 == key) for key in range(3)
    }
    assert unnamed(open_store(location), [ledger]) == set()
    settings = server.log_path.read_text()
    assert "not-for-metadata" not in settings


def rows_of_duckdb(s3: S3, files: list[str]) -> dict[str, int]:
    """Messages by key, as DuckDB counts them over fsspec."""
    import s3fs

    connection = duckdb.connect()
    connection.register_filesystem(s3fs.S3FileSystem(endpoint_url=s3.endpoint_url))
    try:
        found = connection.execute("select key, count(*) from read_parquet(?) group by key", [files])
        return dict(found.fetchall())
    finally:
        connection.close()


def test_a_bucket_that_is_not_there_fails_the_ledger_and_says_why(
    spark_with_s3: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    publish(client, topic, [b"x"] * 10)
    close_ledgers(server.rest, topic)
    wanted = ("--want", "--topic", topic, "--location", "s3://nobodys-bucket/x")
    ran = run_in_session(spark_with_s3, capfd, server.offload_address, *wanted, code=1)
    (record,) = ran.records
    assert record["result"] == "failed"
    assert "bucket" in record["reason"].lower()
    assert not complete_ledgers(server.offload_address, topic)


@pytest.mark.full
def test_a_sweep_of_s3_deletes_half_an_attempt_and_keeps_the_whole_one(
    spark_with_s3: SparkSession,
    s3: S3,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    location = s3.location("swept")
    publish(client, topic, [b"x"] * 10)
    close_ledgers(server.rest, topic)
    run_in_session(
        spark_with_s3, capfd, server.offload_address, "--want", "--topic", topic, "--location", location
    )
    (ledger,) = complete_ledgers(server.offload_address, topic)
    store = open_store(location)
    half = f"{ledger.offload.path.rpartition('/')[0]}/attempt={'cd' * 16}"
    store.put_bytes(f"{half}/part-00000.parquet", b"half")
    (swept,) = told(
        capfd,
        *("sweep", "--service", server.offload_address, "--location", location),
        *("--grace-hours", "0", "--json"),
    ).records
    assert (swept["directories"], swept["objects"], swept["failed"]) == (1, 1, [])
    assert unnamed(store, [ledger]) == set()
    assert store.exists(f"{ledger.offload.path}/{MANIFEST_NAME}")
