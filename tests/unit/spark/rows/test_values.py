"""Payloads as values: what fits, what does not, and what becomes of it."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from magnetar.spark.native.value_column import decoded_by_topic
from magnetar.spark.rows.avro_types import type_of_avro
from magnetar.spark.rows.value_types import Unfit, fitting
from magnetar.spark.rows.values import ValueDecoder, ValuePlan, ValueUnfit
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

POINT = StructType([StructField("x", IntegerType()), StructField("tags", ArrayType(StringType()))])


def decode(plan: ValuePlan, kind: DataType, payloads: list[bytes | None], schemas: Any = None) -> list[Any]:
    versions = [None] * len(payloads) if schemas is None else [b"%d" % n for n in range(len(payloads))]
    table = pa.table(
        {
            "payload": pa.array(payloads, pa.binary()),
            "schema_version": pa.array(versions, pa.binary()),
            "null_value": pa.array([False] * len(payloads)),
        }
    )
    known = schemas or {}
    found: list[Any] = ValueDecoder(plan, kind, known.get).decode(table).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (ByteType(), 127, 127),
        (ByteType(), 128, None),
        (LongType(), True, None),
        (LongType(), 1.5, None),
        (DoubleType(), 3, 3.0),
        (BooleanType(), 1, None),
        (StringType(), {"a": [1]}, '{"a": [1]}'),
        (BinaryType(), "YWI=", b"ab"),
        (BinaryType(), "?", None),
        (DateType(), "2026-01-31", date(2026, 1, 31)),
        (TimestampType(), "2026-01-31T00:00:00Z", datetime(2026, 1, 31, tzinfo=UTC)),
        (TimestampType(), "then", None),
        (DecimalType(5, 2), 1.25, Decimal("1.25")),
        (DecimalType(3, 2), 10, None),
        (POINT, {"x": "1", "tags": ["a", None]}, {"x": None, "tags": ["a", None]}),
        (POINT, {"y": 1}, {"x": None, "tags": None}),
        (POINT, [], None),
        (MapType(StringType(), LongType()), {"a": 1, "b": "c"}, [("a", 1), ("b", None)]),
    ],
)
def test_a_value_that_does_not_fit_its_type_is_null_there_and_only_there(
    kind: DataType, value: Any, expected: Any
) -> None:
    assert fitting(kind, strict=False)(value) == expected
    if expected is None:
        with pytest.raises(Unfit):
            fitting(kind, strict=True)(value)


def test_json_that_is_none_is_null_or_an_error_where_that_was_asked_for() -> None:
    payloads = [b'{"x": 5, "tags": ["a"]}', b"{", None, b"null", b"[1]"]
    found = decode(ValuePlan("json", POINT), POINT, payloads)
    assert found == [{"x": 5, "tags": ["a"]}, None, None, None, None]
    with pytest.raises(ValueUnfit, match="cannot be decoded as json"):
        decode(ValuePlan("json", POINT, strict=True), POINT, payloads)


def test_text_that_is_not_utf8_is_null() -> None:
    assert decode(ValuePlan("string", StringType()), StringType(), [b"a\xc3\xa4", b"\xff"]) == ["aä", None]


def test_numbers_of_primitive_schemas_are_big_endian() -> None:
    assert decode(ValuePlan("INT32", IntegerType()), IntegerType(), [b"\0\0\1\0", b"\1"]) == [256, None]


FIRST = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
SECOND = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}, *FIRST["fields"]]}


def avro(schema: Any, value: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


def test_avro_is_decoded_with_the_schema_that_it_was_written_with() -> None:
    kind = type_of_avro(SECOND)
    payloads: list[bytes | None] = [avro(FIRST, {"a": 1}), avro(SECOND, {"a": 2, "b": "x"}), b"\x02\x02"]
    plan = ValuePlan("avro", kind, avro=json.dumps(SECOND))
    schemas = {b"0": json.dumps(FIRST), b"1": json.dumps(SECOND), b"2": json.dumps(FIRST)}
    found = decode(plan, kind, payloads, schemas)
    assert found == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, None]


def test_avro_types_have_their_counterparts() -> None:
    schema = {
        "type": "record",
        "name": "All",
        "namespace": "n",
        "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "again", "type": "n.E"},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "n", "type": ["int", "long"]},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        ],
    }
    kind = type_of_avro(schema)
    assert kind.simpleString() == (
        "struct<e:string,again:string,d:decimal(5,2),t:timestamp,day:date,m:map<string,bigint>,n:bigint,f:binary>"
    )
    value = {
        "e": "A",
        "again": "A",
        "d": Decimal("1.25"),
        "t": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "m": {"k": 1},
        "n": 7,
        "f": b"xy",
    }
    found = decode(ValuePlan("avro", kind, avro=json.dumps(schema)), kind, [avro(schema, value)])
    assert found == [{**value, "m": [("k", 1)]}]


def test_versions_of_schemas_are_those_of_each_rows_topic() -> None:
    def schema(field: str) -> str:
        return json.dumps({"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]})

    kind = StructType([StructField("a", IntegerType()), StructField("b", IntegerType())])
    plan = ValuePlan("avro", kind, "", schema("a"))
    made: list[str] = []

    def decoder_of(topic: str) -> ValueDecoder:
        made.append(topic)
        return ValueDecoder(plan, kind, {b"0": schema(topic)}.get)

    topics = ["b", "a", "b", "a", "a"]
    table = pa.table(
        {
            "payload": pa.array([bytes([2 * number]) for number in range(5)], pa.binary()),
            "schema_version": pa.array([b"0"] * 5, pa.binary()),
            "null_value": pa.array([False] * 5),
        }
    )
    found = decoded_by_topic(pa.array(topics), table, decoder_of).to_pylist()
    assert found == [{"a": None, "b": None} | {topic: n} for n, topic in enumerate(topics)]
    assert sorted(made) == ["a", "b"]
    none = table.slice(0, 0)
    assert len(decoded_by_topic(pa.array([], pa.string()), none, decoder_of)) == 0
