"""Encrypted messages in Spark: offloaded and not, alone, in batches and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import magnetar.spark
import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from tests.integration.rest import Rest
from tests.spark.offload_runs import run_in_session
from tests.spark.servers import SparkServer, close_ledgers, publish

pytestmark = pytest.mark.full

CHUNKED_BYTES = 6_000_000
"""More than a message may have."""

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, server: SparkServer) -> Read:
    """Reads with `native` by Spark's own reader of Parquet, otherwise by the format."""
    magnetar.spark.register(spark)

    def act(topic: str, native: bool = False, **options: Any) -> DataFrame:
        named = {name.replace("_", "."): value for name, value in options.items()}
        given = {"offload.address": server.offload_address, "topic": topic, **named}
        if native:
            return magnetar.spark.read_topic(spark, given)
        return spark.read.format("magnetar").options(**given).load()

    return act


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory with the private key `owner`, and its public key beside it."""
    key = rsa.generate_private_key(65_537, 2_048)
    directory = tmp_path / "keys"
    directory.mkdir()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "owner.pem").write_bytes(pem)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    return directory


def in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("ledger_id", "entry_id", "batch_index").collect()


def sealed(keys: Path) -> dict[str, Any]:
    """Options of a producer that encrypts."""
    reader = pulsar.CryptoKeyReader(str(keys.parent / "public.pem"), str(keys / "owner.pem"))
    return {"crypto_key_reader": reader, "encryption_key": "owner"}


def test_encrypted_messages_are_read_with_the_key_and_raw_without(
    read: Read,
    spark: SparkSession,
    server: SparkServer,
    rest: Rest,
    client: pulsar.Client,
    topic: str,
    keys: Path,
    location: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    batched = {"compression_type": pulsar.CompressionType.LZ4, **sealed(keys)}
    numbered = [b"message %d" % number for number in range(40)]

    def keyed(number: int) -> dict[str, Any]:
        return {"partition_key": f"key-{number % 3}"}

    publish(client, topic, numbered[:20], batch=5, message=keyed, **batched)
    publish(client, topic, [b"in clear"], batch=1)
    publish(client, topic, [b"x" * CHUNKED_BYTES], batch=1, chunking_enabled=True, **sealed(keys))
    close_ledgers(rest, topic)
    run_in_session(spark, capfd, server.offload_address, "--want", "--topic", topic, "--location", location)
    publish(client, topic, numbered[20:], batch=5, message=keyed, **batched)
    publish(client, topic, [b"y" * CHUNKED_BYTES], batch=1, chunking_enabled=True, **sealed(keys))
    expected = [*numbered[:20], b"in clear", b"x" * CHUNKED_BYTES, *numbered[20:], b"y" * CHUNKED_BYTES]

    for native in (False, True):
        found = in_order(read(topic, native, crypto_key_dir=str(keys), task_bytes="2000000"))
        assert [bytes(row.payload) for row in found] == expected
        assert all(row.raw_reason is None for row in found)
        assert [row.key for row in found[:6]] == [f"key-{number % 3}" for number in range(6)]
        assert [row.message_index for row in found[:20]] == list(range(20))

        raw = read(topic, native, columns="payload,raw_reason,encryption_keys").collect()
        assert [bytes(row.payload) for row in raw if row.raw_reason is None] == [b"in clear"]
        assert {row.raw_reason for row in raw} == {None, "encrypted"}
        names = [row.encryption_keys for row in raw if row.encryption_keys is not None]
        assert names == [["owner"]] * (len(raw) - 1)

    left = read(topic, crypto_failure="discard", columns="payload").collect()
    assert [bytes(row.payload) for row in left] == [b"in clear"]
    with pytest.raises(PySparkException, match=r"crypto\.failure"):
        read(topic, crypto_failure="fail").collect()


def test_a_stream_decrypts_and_filters_see_decrypted_keys(
    spark: SparkSession,
    server: SparkServer,
    client: pulsar.Client,
    topic: str,
    keys: Path,
    tmp_path: Path,
    rest: Rest,
    location: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    magnetar.spark.register(spark)

    def keyed(number: int) -> dict[str, Any]:
        return {"partition_key": f"key-{number}"}

    sent = [b"message %d" % number for number in range(30)]
    publish(client, topic, sent, batch=10, message=keyed, **sealed(keys))
    options = {
        "offload.address": server.offload_address,
        "topic": topic,
        "crypto.key.dir": str(keys),
        "starting": "earliest",
    }
    stream = spark.readStream.format("magnetar").options(**options).load()
    query = (
        stream.writeStream.format("memory")
        .queryName("decrypted")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert [bytes(row.payload) for row in in_order(spark.table("decrypted"))] == sent
    close_ledgers(rest, topic)
    run_in_session(spark, capfd, server.offload_address, "--want", "--topic", topic, "--location", location)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("magnetar").options(**options, pushdown="true").load()
        (row,) = frame.where("key = 'key-29'").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert bytes(row.payload) == b"message 29"
