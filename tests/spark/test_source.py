"""Topics as tables: what is offloaded and what is not, by the format "magnetar" and by Spark's own reader."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import magnetar.spark
import pulsar
import pytest
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from tests.integration.rest import Rest
from tests.spark.offload_runs import run_in_session
from tests.spark.servers import SparkServer, close_ledgers, publish, read_all

MESSAGES = 700
OFFLOADED = 400

Read = Callable[..., DataFrame]
Offload = Callable[..., None]


@pytest.fixture(params=["format", pytest.param("native", marks=pytest.mark.full)])
def read(request: pytest.FixtureRequest, spark: SparkSession, server: SparkServer) -> Read:
    """Reads the same in both ways."""
    magnetar.spark.register(spark)

    def act(topic: str, **options: Any) -> DataFrame:
        named = {name.replace("_", "."): value for name, value in options.items()}
        given = {"offload.address": server.offload_address, "topic": topic, **named}
        if request.param == "native":
            return magnetar.spark.read_topic(spark, given)
        return spark.read.format("magnetar").options(**given).load()

    return act


@pytest.fixture
def table(spark: SparkSession, server: SparkServer) -> Read:
    """Reads by the format alone."""
    magnetar.spark.register(spark)

    def act(topic: str | None, **options: Any) -> DataFrame:
        named = {name.replace("_", "."): value for name, value in options.items()}
        given = {"offload.address": server.offload_address, **named}
        if topic is not None:
            given["topic"] = topic
        return spark.read.format("magnetar").options(**given).load()

    return act


@pytest.fixture
def offload(
    spark: SparkSession, server: SparkServer, rest: Rest, location: str, capfd: pytest.CaptureFixture[str]
) -> Offload:
    """Closes a topic's ledger and has it offloaded."""

    def act(topic: str, *more: str) -> None:
        close_ledgers(rest, topic)
        wanted = ("--want", "--topic", topic, "--location", location)
        run_in_session(spark, capfd, server.offload_address, *wanted, *more)

    return act


def payloads(first: int, last: int) -> list[bytes]:
    return [f"message {number} ".encode() + b"x" * (number % 50) for number in range(first, last)]


def fields(number: int) -> dict[str, Any]:
    return {
        "partition_key": f"key-{number % 7}",
        "properties": {"number": str(number)},
        "event_timestamp": 1_700_000_000_000 + number,
    }


class Half(NamedTuple):
    """A topic whose first messages are Parquet, and whose last are in an open ledger."""

    topic: str
    sent: list[bytes]


@pytest.fixture(scope="module")
def halves() -> list[Half]:
    """The one topic of that kind: tests that only read share it."""
    return []


@pytest.fixture
def half(halves: list[Half], client: pulsar.Client, topic: str, offload: Offload) -> Half:
    """Made for the first test that asks; its objects stay with that test's directory."""
    if not halves:
        sent = payloads(0, MESSAGES)
        publish(client, topic, sent[:OFFLOADED], message=fields)
        offload(topic)
        publish(client, topic, sent[OFFLOADED:], message=fields)
        halves.append(Half(topic, sent))
    return halves[0]


def in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("ledger_id", "entry_id", "batch_index").collect()


def id_of(row: Row) -> tuple[int, int, int]:
    return row.ledger_id, row.entry_id, row.batch_index


def test_a_topic_half_offloaded_is_every_message_once_as_a_client_reads_it(
    read: Read, client: pulsar.Client, half: Half
) -> None:
    topic, sent = half
    expected = read_all(client, topic, MESSAGES)
    rows = in_order(read(topic))
    assert [bytes(row.payload) for row in rows] == sent
    for row, message in zip(rows, expected, strict=True):
        message_id = message.message_id()
        assert id_of(row) == (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
        assert row.key == message.partition_key()
        assert row.properties == message.properties()
        assert row.producer_name == message.producer_name()
        assert row.publish_time.replace(tzinfo=UTC).timestamp() * 1000 == message.publish_timestamp()
        assert row.event_time.replace(tzinfo=UTC).timestamp() * 1000 == message.event_timestamp()
        assert row.topic == topic
        assert row.raw_reason is None
    assert [row.message_index for row in rows] == list(range(MESSAGES))


@pytest.mark.full
def test_an_entry_range_is_read_by_several_tasks(table: Read, half: Half) -> None:
    frame = table(half.topic, task_bytes=2_000)
    assert frame.rdd.getNumPartitions() >= 4
    assert [bytes(row.payload) for row in in_order(frame)] == half.sent


@pytest.mark.full
def test_bounds_by_message_ids_are_exact_also_inside_a_batch(read: Read, half: Half) -> None:
    topic, sent = half
    ids = [id_of(row) for row in in_order(read(topic))]
    for first, last in ((0, 1), (150, 401), (399, 450), (500, 500)):
        start, end = ("{}:{}:-1:{}".format(*ids[at]) for at in (first, last))
        rows = in_order(read(topic, starting=start, ending=end))
        assert [bytes(row.payload) for row in rows] == sent[first:last]


@pytest.mark.full
def test_bounds_by_time_are_when_the_broker_took_messages(read: Read, half: Half) -> None:
    topic = half.topic
    rows = in_order(read(topic))
    times = [round(row.broker_publish_time.replace(tzinfo=UTC).timestamp() * 1000) for row in rows]
    middle = times[len(times) // 2]
    before = read(topic, ending_time=middle).count()
    after = read(topic, starting_time=middle).count()
    assert before == sum(time < middle for time in times)
    assert before + after == MESSAGES
    text = datetime.fromtimestamp(middle / 1000, UTC).isoformat()
    assert read(topic, starting_time=text).count() == after


def test_the_first_message_is_there_where_there_is_one_message_and_no_schema(
    read: Read, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic, [b"the first"], batch=1)
    assert [(bytes(row.payload), row.batch_index) for row in read(topic).collect()] == [(b"the first", -1)]


def test_a_topic_without_messages_is_an_empty_table(read: Read, client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).close()
    assert read(topic).count() == 0


@pytest.mark.full
def test_chosen_columns_are_all_that_a_frame_has(read: Read, half: Half) -> None:
    frame = read(half.topic, columns="key,entry_id")
    assert frame.columns == ["key", "entry_id"]
    assert frame.groupBy("key").count().count() == 7


def test_partitions_of_a_topic_and_topics_of_a_pattern_are_one_table(
    table: Read, rest: Rest, client: pulsar.Client, offload: Offload
) -> None:
    tag = uuid.uuid4().hex[:8]
    name = f"persistent://public/default/parts-{tag}"
    rest.do("PUT", f"/persistent/public/default/parts-{tag}/partitions", 3)
    other = f"persistent://public/default/alone-{tag}"
    publish(client, name, payloads(0, 300), message=fields)
    publish(client, other, payloads(300, 400))
    offload(f"{name}-partition-1")
    by_name = table(name)
    counts = {row.topic: row["count"] for row in by_name.groupBy("topic", "partition").count().collect()}
    assert set(counts) <= {f"{name}-partition-{number}" for number in range(3)}
    assert sum(counts.values()) == 300
    by_pattern = table(None, topics_pattern=f".*-{tag}(-partition-[0-9]+)?")
    assert sorted(bytes(row.payload) for row in by_pattern.collect()) == sorted(payloads(0, 400))


@pytest.mark.full
def test_native_reading_of_several_topics_knows_whose_each_row_is(
    spark: SparkSession, server: SparkServer, client: pulsar.Client, topic: str, offload: Offload
) -> None:
    second = f"{topic}-second"
    for name, first in ((topic, 0), (second, 100)):
        publish(client, name, payloads(first, first + 100))
        offload(name)
    given = {"offload.address": server.offload_address, "topics": f"{topic},{second}"}
    rows = magnetar.spark.read_topic(spark, given).select("topic", "payload").collect()
    assert {(row.topic, bytes(row.payload)) for row in rows} == {
        *((topic, payload) for payload in payloads(0, 100)),
        *((second, payload) for payload in payloads(100, 200)),
    }


def test_spark_pushes_filters_and_columns_into_offloaded_files(
    spark: SparkSession, server: SparkServer, client: pulsar.Client, topic: str, offload: Offload
) -> None:
    publish(client, topic, payloads(0, 100), message=fields)
    offload(topic)
    given = {"offload.address": server.offload_address, "topic": topic}
    spark.conf.set("spark.sql.maxMetadataStringLength", 10_000)
    try:
        frame = magnetar.spark.read_topic(spark, given).where("key = 'key-3' AND entry_id >= 0").select("key")
        plan = frame._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset("spark.sql.maxMetadataStringLength")
    assert "BatchScan magnetar" not in plan
    messages, chunks = re.findall(r"PushedFilters: \[(.*?)\], ReadSchema: struct<(.*)>", plan)
    assert "EqualTo(key,key-3)" in messages[0]
    assert "key:string" in messages[1]
    assert "payload" not in messages[1]
    assert "IsNotNull(chunk_uuid)" in chunks[0]
    assert frame.count() == sum(number % 7 == 3 for number in range(100))


@pytest.mark.full
def test_pushed_filters_leave_out_what_cannot_match_and_nothing_else(
    spark: SparkSession, table: Read, half: Half
) -> None:
    topic = half.topic
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        expected = sum(number % 7 == 3 for number in range(MESSAGES))
        assert table(topic, pushdown="true").where("key = 'key-3'").count() == expected
        assert table(topic, pushdown="true").where(f"topic = '{topic}'").count() == MESSAGES
        assert table(topic, pushdown="true").where("topic = 'another'").count() == 0
        frame = table(topic, pushdown="true")
        assert frame.where("message_index >= 650").count() == 50
        # What docs/spark.md warns of: Spark keeps what was pushed with the loaded table.
        assert frame.count() < MESSAGES
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.full
def test_messages_in_chunks_are_one_row_also_where_the_offloaded_part_ends_between(
    read: Read, client: pulsar.Client, topic: str, offload: Offload
) -> None:
    # Above the largest entry, and not to be compressed below it.
    large = [bytes([65 + number]) * MESSAGE_BYTES_MAX + b"end" for number in range(4)]
    publish(client, topic, [b"before"], batch=1)
    publish(client, topic, large[:2], batch=1, chunking_enabled=True)
    offload(topic)
    publish(client, topic, large[2:], batch=1, chunking_enabled=True)
    publish(client, topic, [b"after"], batch=1)
    rows = in_order(read(topic))
    assert [bytes(row.payload) for row in rows] == [b"before", *large, b"after"]
    assert [row.chunk_total is None for row in rows] == [True, False, False, False, False, True]
    assert [row.raw_reason for row in rows] == [None] * 6
    kept = read(topic, chunks="keep")
    assert kept.where("chunk_uuid IS NOT NULL").count() == sum(row.chunk_total or 0 for row in rows)
    # A bound after the first chunk: the message ends behind it, so it is there, and whole.
    first = kept.where("chunk_id = 0").orderBy("ledger_id", "entry_id").first()
    assert first is not None
    after = in_order(read(topic, starting=f"{first.ledger_id}:{first.entry_id + 1}"))
    assert [bytes(row.payload) for row in after] == [*large, b"after"]
    assert [row.raw_reason for row in after] == [None] * 5


def test_values_are_decoded_as_text_and_json(
    read: Read, client: pulsar.Client, topic: str, offload: Offload
) -> None:
    sent = [json.dumps({"a": number, "b": {"c": ["x"] * (number % 3)}}).encode() for number in range(60)]
    publish(client, topic, sent[:30])
    offload(topic)
    publish(client, topic, [*sent[30:], b"no json", b"\xff\xfe"])
    texts = [row.value for row in in_order(read(topic, value_format="string"))]
    assert texts == [*(payload.decode() for payload in sent), "no json", None]
    frame = read(topic, value_format="json", value_schema="a INT, b STRUCT<c: ARRAY<STRING>>")
    rows = in_order(frame.select("*", "value.a", f.size("value.b.c").alias("size")))
    assert [row.a for row in rows] == [*range(60), None, None]
    assert [row["size"] for row in rows[:60]] == [number % 3 for number in range(60)]


class Person(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    age = pulsar.schema.Integer()


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_values_are_decoded_by_the_schema_of_the_topic(
    read: Read, client: pulsar.Client, topic: str, offload: Offload, kind: str
) -> None:
    schemas = {"json": pulsar.schema.JsonSchema, "avro": pulsar.schema.AvroSchema}
    producer = client.create_producer(topic, schema=schemas[kind](Person))
    for number in range(20):
        producer.send(Person(name=f"name {number}", age=number))
    producer.close()
    offload(topic)
    expected = [(f"name {number}", number) for number in range(20)]
    for chosen in (kind, "auto"):
        rows = in_order(read(topic, value_format=chosen))
        assert [(row.value.name, row.value.age) for row in rows] == expected


class Citizen(pulsar.schema.Record):  # type: ignore[misc]
    city = pulsar.schema.String(required_default=True)
    name = pulsar.schema.String()
    age = pulsar.schema.Integer()


def test_avro_values_are_decoded_by_the_version_of_the_schema_that_they_were_written_with(
    read: Read, server: SparkServer, client: pulsar.Client, topic: str, offload: Offload
) -> None:
    first = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Person))
    first.send(Person(name="one", age=1))
    first.close()
    offload(topic)
    second = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Citizen))
    second.send(Citizen(city="X", name="two", age=2))
    second.close()
    rows = in_order(read(topic, value_format="avro", service_url=server.endpoint.service_url))
    found = [(row.value.city, row.value.name, row.value.age) for row in rows]
    assert found == [(None, "one", 1), ("X", "two", 2)]


def test_unknown_option_is_an_error_that_names_the_nearest(table: Read, topic: str) -> None:
    with pytest.raises(Exception, match=r'did you mean "starting\.time"'):
        table(topic, starting_tim="0")


def test_a_topic_that_is_not_there_is_said(table: Read) -> None:
    with pytest.raises(Exception, match="absent-topic"):
        table("absent-topic").count()
