"""Options for reading: what is refused says what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.spark.message_ids import BEGINNING, MessageAt, parse_message_id
from magnetar.spark.rows.columns import chosen, frame_ddl, frame_schema, stored_columns
from magnetar.spark.rows.values import plan_values
from magnetar.spark.source.topic_description import option_of
from magnetar.spark.source_options import DEFAULT_SERVICE, BadOption, parse_options
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

TOPIC = "persistent://public/default/orders"


def test_names_of_options_are_not_case_sensitive_and_short_topics_are_whole_names() -> None:
    options = parse_options({"TOPIC": "orders", "maxrowspertrigger": "10", "failondataloss": "False"})
    assert options.topics == (TOPIC,)
    assert options.max_rows_per_trigger == 10
    assert not options.fail_on_data_loss
    assert options.service.address == DEFAULT_SERVICE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, 'set the option "topic"'),
        ({"topic": "a", "topics.pattern": ".*"}, "not both"),
        ({"topic": "a", "startin": "1:2"}, 'did you mean "starting"'),
        ({"topic": "a/b"}, "topic"),
        ({"topic": "non-persistent://public/default/a"}, "not persistent"),
        ({"topics.pattern": "("}, "not a valid regular expression"),
        ({"topic": "a", "starting": "12"}, "not a message id"),
        ({"topic": "a", "starting": "{12"}, "not JSON"),
        ({"topic": "a", "starting": "[1]"}, "not a message id"),
        ({"topics": "a,b", "starting": "1:2"}, "give JSON"),
        ({"topic": "a", "ending": "earliest"}, "read nothing"),
        ({"topic": "a", "starting": "1:2", "starting.time": "5"}, "not both"),
        ({"topic": "a", "starting.time": "yesterday"}, "ms since 1970"),
        ({"topic": "a", "task.bytes": "0"}, "above 0"),
        ({"topic": "a", "maxRowsPerTrigger": "-5"}, "above 0"),
        ({"topic": "a", "chunks": "no"}, "one of join, keep"),
        ({"topic": "a", "failOnDataLoss": "maybe"}, "true or false"),
        ({"topic": "a", "offload.address": "nowhere"}, "host:port"),
        ({"topic": "a", "offload.address": "h:99999"}, "host:port"),
        ({"topic": "a", "subscription": "s"}, "service.url"),
        ({"topic": "a", "ledgers": "5"}, "not JSON such as"),
    ],
)
def test_invalid_option_is_refused_with_a_hint(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        parse_options(given)


def test_bounds_are_said_for_all_topics_or_by_topic() -> None:
    one = parse_options({"topic": "orders", "starting": "5:7", "ending": "latest"})
    assert option_of(one, TOPIC, "starting") == MessageAt(5, 7)
    assert option_of(one, TOPIC, "ending") == "latest"
    several = parse_options({"topics": "orders,b", "starting": '{"orders": "5:7:0:3", "b": "earliest"}'})
    assert option_of(several, TOPIC, "starting") == MessageAt(5, 7, 3)
    assert option_of(several, "persistent://public/default/b", "starting") == "earliest"
    assert option_of(several, "persistent://public/default/c", "starting") is None


def test_times_are_milliseconds_or_iso_in_utc() -> None:
    for text in ("1767225600000", "2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01T01:00:00+01:00"):
        assert parse_options({"topic": "a", "starting.time": text}).starting_time_ms == 1767225600000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:34", MessageAt(12, 34)),
        ("12:34:5", MessageAt(12, 34)),
        ("12:34:-1:7", MessageAt(12, 34, 7)),
        ("-1:-1", BEGINNING),
    ],
)
def test_message_ids_are_read_as_tools_print_them(text: str, expected: MessageAt) -> None:
    assert parse_message_id(text) == expected
    assert parse_message_id(str(expected)) == expected


def test_message_ids_that_are_none_are_refused() -> None:
    for text in ("", "1", "1:", "a:b", "1:2:3:4:5"):
        with pytest.raises(ValueError, match="not a message id"):
            parse_message_id(text)


def test_columns_are_all_or_the_chosen_ones_in_their_order() -> None:
    everything = chosen((), value=False)
    assert everything[:4] == ["topic", "ledger_id", "entry_id", "batch_index"]
    assert "entry_metadata" not in everything
    assert chosen((), value=True)[-1] == "value"
    assert chosen(("key", "topic", "key"), value=False) == ["key", "topic"]
    with pytest.raises(BadOption, match=r"value\.format"):
        chosen(("value",), value=False)
    with pytest.raises(BadOption, match="unknown column 'entry_metadata'"):
        chosen(("entry_metadata",), value=False)
    assert frame_schema(["key", "value"], LongType()).simpleString() == "struct<key:string,value:bigint>"
    assert frame_ddl(["entry_id", "value"], "INT") == "`entry_id` bigint NOT NULL, `value` INT"


def test_only_the_columns_that_are_needed_are_read() -> None:
    alone = stored_columns(["key"], joins=False, times=False)
    assert alone == ["ledger_id", "entry_id", "batch_index", "key", "raw_reason"]
    assert "payload" not in stored_columns(["key"], joins=True, times=False)
    assert {"payload", "entry_metadata"} <= set(stored_columns(["payload"], joins=True, times=False))
    assert {"payload", "schema_version"} <= set(stored_columns(["value"], joins=False, times=False))
    assert "broker_publish_time" in stored_columns(["key"], joins=False, times=True)


AVRO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":["null","string"]}]}'
)
AVRO_TYPE = StructType([StructField("a", IntegerType()), StructField("b", StringType())])


@pytest.mark.parametrize(
    ("given", "topic_schema", "kind", "expected"),
    [
        ({"value.format": "string"}, ("", b""), "string", StringType()),
        ({"value.format": "json"}, ("JSON", AVRO.encode()), "json", AVRO_TYPE),
        ({"value.format": "json", "value.schema": AVRO}, ("", b""), "json", AVRO_TYPE),
        ({"value.format": "json", "value.schema": AVRO_TYPE.json()}, ("", b""), "json", AVRO_TYPE),
        ({"value.format": "json", "value.schema": "a INT"}, ("", b""), "json", "STRUCT<a INT>"),
        ({"value.format": "json", "value.schema": "array<int>"}, ("", b""), "json", "array<int>"),
        ({"value.format": "avro"}, ("Avro", AVRO.encode()), "avro", AVRO_TYPE),
        ({"value.format": "avro", "value.schema": AVRO}, ("", b""), "avro", AVRO_TYPE),
        ({"value.format": "auto"}, ("AVRO", AVRO.encode()), "avro", AVRO_TYPE),
        ({"value.format": "auto"}, ("DOUBLE", b""), "DOUBLE", DoubleType()),
    ],
)
def test_types_of_values_come_from_the_option_or_the_topic(
    given: dict[str, str], topic_schema: tuple[str, bytes], kind: str, expected: Any
) -> None:
    plan = plan_values(parse_options({"topic": "a", **given}), lambda: topic_schema)
    assert plan.kind == kind
    assert expected == (plan.ddl if plan.type is None else plan.type)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value.format": "json"}, "give value.schema"),
        ({"value.format": "avro"}, "give an Avro schema"),
        ({"value.format": "avro", "value.schema": '{"type": '}, "not JSON"),
        ({"value.format": "avro", "value.schema": '{"type": "record"}'}, "not a valid Avro schema"),
        ({"value.format": "json", "value.schema": '["int", "string"]'}, "no type for the Avro union"),
        (
            {
                "value.format": "avro",
                "value.schema": '{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}',
            },
            "in itself",
        ),
    ],
)
def test_values_without_a_usable_schema_are_refused_with_a_hint(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        plan_values(parse_options({"topic": "a", **given}), lambda: ("", b""))
