"""Values of frames written with a schema: definitions made of types, and encoded values."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from magnetar.common.wire.pulsar_pb2 import Schema
from magnetar.spark.rows.avro_types import type_of_avro
from magnetar.spark.sink.errors import BadColumns, BadOption, BadRow
from magnetar.spark.sink.options import parse_sink_options
from magnetar.spark.sink.rows import RowEncoder, check_columns
from magnetar.spark.sink.value_schema import ValueSchema, avro_of, value_encoder, value_schema
from magnetar.spark.sink.writers import batch_writer
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
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


def struct(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


ORDER = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("item", struct(name=StringType(), tags=ArrayType(StringType()))),
        StructField("of", MapType(StringType(), IntegerType())),
    ]
)
ORDERS: list[Any] = [
    {"id": 1, "item": {"name": "tea", "tags": ["a", None]}, "of": [("z", 1), ("b", 2)]},
    {"id": 2, "item": None, "of": None},
]
PLAIN = [
    {"id": 1, "item": {"name": "tea", "tags": ["a", None]}, "of": {"b": 2, "z": 1}},
    {"id": 2, "item": None, "of": None},
]


def payloads(schema: ValueSchema, values: list[Any]) -> list[bytes]:
    column = pa.array(values, to_arrow_type(schema.kind, timezone="UTC"))
    encoder = RowEncoder("persistent://public/default/t", value_encoder(schema))
    return [row.payload for row in encoder.rows(pa.RecordBatch.from_arrays([column], ["value"]))]


def read(schema: ValueSchema, payload: bytes) -> Any:
    return fastavro.schemaless_reader(
        io.BytesIO(payload), fastavro.parse_schema(json.loads(schema.definition)), None
    )


def test_nested_values_are_written_as_avro_of_the_columns_type() -> None:
    schema = value_schema("avro", "", ORDER)
    assert [read(schema, each) for each in payloads(schema, ORDERS)] == PLAIN
    assert schema.wire().type == Schema.Avro


def test_nested_values_are_written_as_json_of_the_columns_type() -> None:
    schema = value_schema("json", "", ORDER)
    assert [json.loads(each) for each in payloads(schema, ORDERS)] == PLAIN
    assert schema.wire() == Schema(name="", type=Schema.Json, schema_data=schema.definition.encode())


def test_the_same_map_in_another_order_is_the_same_payload() -> None:
    for value_format in ("avro", "json"):
        schema = value_schema(value_format, "", ORDER)
        one, other = payloads(
            schema, [{**ORDERS[0], "of": pairs} for pairs in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])]
        )
        assert one == other


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ByteType(), 5),
        (DoubleType(), 1.5),
        (BinaryType(), b"\x00\xff"),
        (DecimalType(5, 2), Decimal("1.25")),
        (DateType(), date(2026, 1, 31)),
        (TimestampType(), datetime(2026, 1, 31, 1, 2, 3, 4, UTC)),
        (ArrayType(struct(a=BooleanType())), [{"a": True}, None]),
    ],
)
def test_types_have_their_counterparts_in_avro(kind: DataType, value: Any) -> None:
    row = struct(v=kind)
    schema = value_schema("avro", "", row)
    (payload,) = payloads(schema, [{"v": value}])
    assert read(schema, payload) == {"v": value}
    read_as = type_of_avro(json.loads(schema.definition)).simpleString()
    assert read_as == row.simpleString().replace("tinyint", "int")


def test_a_message_without_value_stays_one() -> None:
    assert payloads(value_schema("avro", "", ORDER), [None]) == [b""]


def test_a_given_definition_decides() -> None:
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW"]}, "default": "NEW"},
        ],
    }
    kind = StructType([StructField("id", IntegerType(), nullable=False)])
    schema = value_schema("avro", json.dumps(definition), kind)
    (payload,) = payloads(schema, [{"id": 7}])
    assert read(schema, payload) == {"id": 7, "state": "NEW"}


@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_a_row_that_does_not_fit_the_definition_is_refused(value_format: str) -> None:
    definition = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
    whole = IntegerType()
    for kind, row in (
        (struct(a=whole), {"a": None}),
        (struct(a=StringType()), {"a": "x"}),
        (struct(b=whole), {"b": 1}),
        (struct(a=whole, b=whole), {"a": 1, "b": 2}),
    ):
        schema = value_schema(value_format, definition, kind)
        with pytest.raises(BadRow, match="does not fit the schema"):
            payloads(schema, [row])


@pytest.mark.parametrize(
    ("value_format", "definition", "kind", "error", "said"),
    [
        ("avro", "{", struct(a=IntegerType()), BadOption, "value.schema is not a valid definition"),
        ("avro", "", struct(**{"a b": IntegerType()}), BadColumns, "'a b' is not a name.*rename the field"),
        (
            "avro",
            "",
            struct(a=DayTimeIntervalType()),
            BadColumns,
            "interval day to second, which cannot be written as Avro",
        ),
        (
            "avro",
            "",
            struct(a=MapType(IntegerType(), IntegerType())),
            BadColumns,
            "cannot be written as Avro",
        ),
        ("json", "", struct(a=TimestampType()), BadColumns, "cannot be written as JSON; cast it"),
        ("json", "", struct(a=BinaryType()), BadColumns, "cannot be written as JSON; cast it"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_write(
    value_format: str, definition: str, kind: DataType, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        value_schema(value_format, definition, kind)


def test_a_plain_column_may_have_a_schema() -> None:
    schema = value_schema("avro", "", StringType())
    assert avro_of(StringType()) == "string"
    assert read(schema, payloads(schema, ["hello"])[0]) == "hello"


def frame(kind: DataType) -> StructType:
    return StructType([StructField("value", kind)])


def test_columns_of_any_type_need_a_format() -> None:
    with pytest.raises(BadColumns, match="value is struct"):
        check_columns(frame(ORDER), "t")
    check_columns(frame(ORDER), "t", encoded=True)
    with pytest.raises(BadColumns, match=r"with value\.format the column is named value"):
        check_columns(StructType([StructField("payload", StringType())]), "t", encoded=True)
    with pytest.raises(BadOption, match=r"value\.schema needs value\.format"):
        parse_sink_options({"value.schema": '"int"'})


def test_the_schema_of_a_write_is_made_on_the_driver() -> None:
    writer = batch_writer({"topic": "t", "transactions": "off", "value.format": "avro"}, frame(ORDER), False)
    assert writer._values == value_schema("avro", "", ORDER)
    assert batch_writer({"topic": "t", "transactions": "off"}, frame(StringType()), False)._values is None
