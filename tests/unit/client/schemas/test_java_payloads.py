"""Definitions and payloads of Pulsar's own Java client, as it printed them: java_payloads.tsv."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Final

import pytest
from magnetar.client.schemas import primitive
from magnetar.client.schemas.auto import AutoConsume
from magnetar.client.schemas.avro import Avro
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.key_value import KeyAndValue, KeyValue, split_payload
from magnetar.client.schemas.primitive import Primitive
from magnetar.client.schemas.records import Float, Int
from magnetar.client.schemas.schema import SchemaInfo
from magnetar.common.schemas.definition import SchemaType

VERSION: Final = bytes(8)
MOMENT: Final = datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC)
PROPERTIES: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}


@dataclass(frozen=True)
class JavaCase:
    info: SchemaInfo
    payload: bytes | None


class Color(Enum):
    RED = 1
    GREEN = 2


@dataclass
class Line:
    sku: str | None
    count: Int


@dataclass
class Order:
    number: int
    count: Int
    customer: str | None
    paid: bool
    price: float
    weight: Float
    raw: bytes | None
    color: Color | None
    line: Line | None
    tags: list[str] | None
    lines: list[Line] | None
    prices: dict[str, float] | None
    note: str | None
    gift: Line | None
    exact: Decimal | None


ORDER: Final = Order(
    number=2**40,
    count=-3,
    customer="Zoë",
    paid=True,
    price=9.95,
    weight=0.5,
    raw=b"\x00\xff",
    color=Color.GREEN,
    line=Line("one", 1),
    tags=["a", "b"],
    lines=[Line("two", 2)],
    prices={"EUR": 1.5},
    note=None,
    gift=Line("three", 3),
    exact=Decimal("1.230"),
)


def java_cases() -> dict[str, JavaCase]:
    path = Path(__file__).with_name("java_payloads.tsv")
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {row["id"]: _case(row) for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)}


def _case(row: dict[str, str]) -> JavaCase:
    properties = dict(each.split("=", 1) for each in row["properties"].split(";") if each)
    info = SchemaInfo(row["name"], SchemaType[row["type"]], bytes.fromhex(row["definition"]), properties)
    return JavaCase(info, None if row["payload"] == "null" else bytes.fromhex(row["payload"]))


CASES: Final = java_cases()

WHOLE: Final[dict[str, tuple[Primitive[Any], Any]]] = {
    "string": (primitive.String(), "Zoë 語"),
    "bool": (primitive.Bool(), True),
    "int8": (primitive.Int8(), -128),
    "int16": (primitive.Int16(), -2),
    "int32": (primitive.Int32(), 0x01020304),
    "int64": (primitive.Int64(), -(2**63)),
    "float": (primitive.Float32(), 0.15625),
    "double": (primitive.Float64(), -0.1),
    "date": (primitive.Date(), MOMENT.replace(microsecond=123_000)),
    "time": (primitive.Time(), time(12, 30, 15, 123_000)),
    "timestamp": (primitive.Timestamp(), MOMENT.replace(microsecond=123_000)),
    "instant-before-1970": (primitive.Instant(), datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)),
    "local-date": (primitive.LocalDate(), date(1969, 12, 31)),
}
FINER: Final[dict[str, tuple[Primitive[Any], Any]]] = {
    "instant": (primitive.Instant(), MOMENT),
    "local-time": (primitive.LocalTime(), time(12, 30, 15, 123_456)),
    "local-date-time": (primitive.LocalDateTime(), MOMENT.replace(tzinfo=None)),
}
"""Values whose last three digits of nanoseconds Python does not have."""


@pytest.mark.parametrize("name", WHOLE)
def test_a_value_is_registered_written_and_read_as_in_java(name: str) -> None:
    schema, value = WHOLE[name]
    assert schema.info == CASES[name].info
    assert CASES[name].payload == schema.encode(value)
    assert schema.decode(schema.encode(value)) == value


@pytest.mark.parametrize("name", FINER)
def test_nanoseconds_are_cut_to_microseconds(name: str) -> None:
    schema, value = FINER[name]
    payload = CASES[name].payload
    assert payload is not None
    assert schema.info == CASES[name].info
    assert schema.decode(payload) == value
    lost = int.from_bytes(payload[-8 if len(payload) != 12 else -4 :], "big")
    cut = int.from_bytes(schema.encode(value)[-8 if len(payload) != 12 else -4 :], "big")
    assert 0 < lost - cut < 1_000


def test_json_of_java_is_read_and_read_back() -> None:
    case = CASES["json"]
    assert case.payload is not None
    assert Json(Order).decode(case.payload) == ORDER
    ours, theirs = json.loads(Json(Order).encode(ORDER)), json.loads(case.payload, parse_float=str)
    assert "note" not in ours, "null is left out on both sides"
    numbers = {"price": 9.95, "weight": 0.5, "prices": {"EUR": 1.5}}
    assert ours == theirs | numbers, "a decimal is the text of Java's number"


def test_avro_of_java_is_read_into_a_class() -> None:
    """Java sorts fields, makes all objects optional and names records by their class."""
    case = CASES["avro"]
    assert case.payload is not None
    schema = Avro(Order)
    schema.add_version(VERSION, case.info)
    assert schema.decode(case.payload, VERSION) == ORDER


def test_avro_by_java_s_definition_has_java_s_bytes() -> None:
    case = CASES["avro"]
    consumer = AutoConsume()
    consumer.add_version(VERSION, case.info)
    assert case.payload is not None
    value = consumer.decode(case.payload, VERSION)
    assert (value["customer"], value["exact"], value["line"]) == (
        "Zoë",
        Decimal("1.230"),
        {"count": 1, "sku": "one"},
    )
    schema = Avro(case.info.data, properties=PROPERTIES)
    assert schema.encode(value) == case.payload
    assert (schema.info.data, schema.info.type) == (case.info.data, case.info.type)


LINES: Final = Avro(
    {
        "type": "record",
        "name": "Line",
        "namespace": "SchemaPayloads",
        "fields": [
            {"name": "count", "type": "int"},
            {"name": "sku", "type": ["null", "string"], "default": None},
        ],
    },
    properties=PROPERTIES,
)
VALUE: Final = {"count": 2, "sku": "s"}


@pytest.mark.parametrize("encoding", ["inline", "separated"])
@pytest.mark.parametrize(
    ("suffix", "value"),
    [
        ("", KeyAndValue("k", VALUE)),
        ("-no-key", KeyAndValue(None, VALUE)),
        ("-no-value", KeyAndValue("k", None)),
        ("-empty-key", KeyAndValue("", VALUE)),
    ],
)
def test_keys_and_values_are_those_of_java(encoding: str, suffix: str, value: Any) -> None:
    case = CASES[f"key-value-{encoding}{suffix}"]
    schema = KeyValue(primitive.String(), LINES, "INLINE" if encoding == "inline" else "SEPARATED")
    assert schema.info == SchemaInfo("KeyValue", case.info.type, case.info.data, case.info.properties)
    key, payload = schema.encode_parts(value)
    assert payload == case.payload
    assert schema.decode_parts(key, payload) == value
    consumer = AutoConsume()
    consumer.add_version(VERSION, case.info)
    assert consumer.decode_parts(key, case.payload, VERSION) == value


def test_plain_bytes_are_parts_as_in_java() -> None:
    case = CASES["key-value-bytes"]
    schema = KeyValue(primitive.Bytes(), primitive.Bytes(), "INLINE")
    assert schema.info == case.info
    assert case.payload is not None
    assert split_payload(case.payload) == (b"\x01", b"\x02")
    assert schema.encode(KeyAndValue(b"\x01", b"\x02")) == case.payload


def test_all_of_the_table_is_looked_at() -> None:
    others = {"json", "avro", "key-value-bytes"}
    pairs = {each for each in CASES if each.startswith(("key-value-inline", "key-value-separated"))}
    assert CASES.keys() == WHOLE.keys() | FINER.keys() | others | pairs
    assert len(pairs) == 8
