"""JSON is that of Java and of the PyPI client; what does not fit is refused with the path of the field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from magnetar.client.schemas.json import Json
from magnetar.client.schemas.records import AvroField
from magnetar.client.schemas.schema import SchemaError, SchemaInfo
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.rules import validate
from pulsar.schema import JsonSchema

from tests.unit.client.schemas.orders import MODEL, ORDER, PYPI, Line, Order, OrderModel, PypiOrder

DEFINITION = {
    "type": "record",
    "name": "Point",
    "fields": [
        {"name": "x", "type": "int"},
        {"name": "y", "type": ["null", "int"], "default": None},
        {"name": "raw", "type": "bytes", "default": "a\u00ff"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}


@dataclass
class Money:
    amount: Decimal
    exact: Annotated[
        Decimal, AvroField({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2})
    ]
    at: datetime
    reference: UUID


@pytest.mark.parametrize(("cls", "value"), [(Order, ORDER), (OrderModel, MODEL)])
def test_a_class_is_read_by_and_from_the_other_python_client(cls: Any, value: Any) -> None:
    ours, others = Json(cls, bytes_as_text=True), JsonSchema(PypiOrder)
    assert others.decode(ours.encode(value)) == PYPI
    assert ours.decode(others.encode(PYPI), bytes(8)) == value
    assert ours.decode(memoryview(ours.encode(value))) == value


def test_the_definition_of_a_class_is_registered() -> None:
    info = Json(Order, properties={"owner": "sales"}).info
    assert (info.type, info.properties) == (SchemaType.JSON, {"owner": "sales"})
    assert json.loads(info.data)["name"] == "Order"
    assert b": " not in info.data
    validate(info.definition())
    assert SchemaInfo.from_wire(info.to_wire()) == info


def test_null_is_left_out_where_a_reader_fills_it_in() -> None:
    """Jackson does so for Java's client; the default of limit is not null, so its null is written."""
    order = Order(**{**ORDER.__dict__, "note": None, "gift": None, "limit": None})
    plain = json.loads(Json(Order).encode(order))
    assert "note" not in plain
    assert "gift" not in plain
    assert plain["limit"] is None
    assert Json(Order).decode(json.dumps(plain).encode()) == order


def test_bytes_are_base64_as_in_java() -> None:
    plain = json.loads(Json(Order).encode(ORDER))
    assert plain["raw"] == "AGE="
    assert plain["color"] == "GREEN"
    assert plain["line"] == {"sku": "one", "count": 1}
    assert Json(Order).decode(Json(Order).encode(ORDER)) == ORDER


def test_fields_that_are_missing_get_the_class_s_default_and_others_are_ignored() -> None:
    assert Json(Line).decode(b'{"sku": "s", "added": {"by": "others"}}') == Line("s", 1)


def test_values_of_logical_types_are_written_as_their_definition_says() -> None:
    money = Money(Decimal("1.230"), Decimal("-0.01"), datetime(2024, 1, 1, tzinfo=UTC), UUID(int=5))
    payload = Json(Money).encode(money)
    assert json.loads(payload) == {
        "amount": "1.230",
        "exact": "/w==",
        "at": 1_704_067_200_000_000,
        "reference": "00000000-0000-0000-0000-000000000005",
    }
    assert Json(Money).decode(payload) == money


def test_decimals_are_read_from_numbers_too_and_exactly() -> None:
    @dataclass
    class Priced:
        amount: Decimal
        rate: float

    payload = b'{"amount": 0.10000000000000000000000001, "rate": 0.5}'
    found = Json(Priced).decode(payload)
    assert found == Priced(Decimal("0.10000000000000000000000001"), 0.5)
    assert isinstance(found.rate, float)
    assert Json(Priced).decode(b'{"amount": 12, "rate": 1}') == Priced(Decimal(12), 1.0)
    for bad in ("true", '"much"', "[]", "NaN"):
        with pytest.raises(SchemaError, match="amount: "):
            Json(Priced).decode(b'{"rate": 1, "amount": ' + bad.encode() + b"}")
    with pytest.raises(SchemaError, match="is not JSON"):
        Json(Priced).decode(b'{"amount": 1e999999999999999999999}')
    with pytest.raises(SchemaError, match=r"rate: Decimal\('1'\) of type Decimal is not a number"):
        Json(Priced).encode(Priced(Decimal(1), Decimal(1)))  # type: ignore[arg-type]


def test_dicts_follow_an_explicit_definition() -> None:
    for source in (DEFINITION, json.dumps(DEFINITION), json.dumps(DEFINITION).encode()):
        schema = Json(source)
        assert json.loads(schema.info.data) == DEFINITION
        payload = schema.encode({"x": 1, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)})
        assert json.loads(payload) == {"x": 1, "y": None, "raw": "Yf8=", "at": 1_000}
        full = {"x": 1, "y": None, "raw": b"a\xff", "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
        assert schema.decode(payload) == full
        assert schema.decode(b'{"x": 1, "at": 1000, "more": 1}') == full
        assert schema.decode(b'{"x": 1}') == full | {"at": None}


def test_a_default_is_each_message_s_own() -> None:
    schema = Json({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": {"type": "array", "items": "int"}, "default": []},
    ]})  # fmt: skip
    schema.decode(b"{}")["a"].append(1)
    assert schema.decode(b"{}") == {"a": []}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{", "a payload of 1 bytes is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", r"cannot be read as Line: \[\] of type list is not a Line"),
        (b'{"sku": 1}', "Line: sku: 1 of type int is not text"),
        (b'{"sku": "s", "count": true}', "count: True of type bool is not an integer"),
        (b'{"sku": "s", "count": 2147483648}', r"count: 2147483648 is outside of -2\*\*31"),
        (b'{"count": 1}', "the field 'sku' is missing"),
        (b'{"sku": null}', "sku: null is not text"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Json(Line).decode(payload, bytes(7) + b"\x03")


def test_errors_name_the_path_of_the_field_and_the_version() -> None:
    plain = json.loads(Json(Order).encode(ORDER))
    plain["lines"].append({"sku": "s", "count": "many"})
    with pytest.raises(
        SchemaError, match=r"version 3 .* Order: lines\[1\]\.count: 'many' of type str is not"
    ):
        Json(Order).decode(json.dumps(plain).encode(), bytes(7) + b"\x03")
    with pytest.raises(SchemaError, match=r"does not fit Order: prices\{'EUR'\}: 'free' of type str"):
        Json(Order).encode(Order(**{**ORDER.__dict__, "prices": {"EUR": "free"}}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"x": "1"}, "Point: x: '1' of type str is not an integer"),
        ({"x": 1, "z": 1}, "Point has no field 'z'"),
        ({}, "the field 'x' is missing"),
        ({"x": 1, "at": datetime(2024, 1, 1)}, "at: .* has no time zone"),
        (ORDER, "is not a dict with the fields of Point"),
    ],
)
def test_a_dict_that_does_not_fit_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Json(DEFINITION).encode(value)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(SchemaError, match="Out of range float values are not JSON compliant"):
        Json(Order).encode(Order(**{**ORDER.__dict__, "price": float("nan")}))
    with pytest.raises(SchemaError, match="surrogates not allowed"):
        Json(Line).encode(Line("\ud800"))
    with pytest.raises(SchemaError, match="'sku' of type str is not a Line"):
        Json(Line).encode("sku")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="is not UTF-8, as bytes written as text must be"):
        Json(Order, bytes_as_text=True).encode(Order(**{**ORDER.__dict__, "raw": b"\xff"}))
    with pytest.raises(SchemaError, match="raw: '=' is not base64"):
        Json(DEFINITION).decode(b'{"x": 1, "raw": "="}')


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (int, "int is neither a dataclass nor a pydantic model"),
        (7, "7 is not a class or an Avro definition"),
        ("{", "the Avro definition is invalid: the definition is not JSON"),
        ({"type": "record", "name": "R"}, "a record without a list of fields"),
        ({"type": object()}, "the Avro definition is not JSON"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "1"}]},
            "R.a: the default is invalid",
        ),
    ],
)
def test_what_makes_no_schema_is_refused(source: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Json(source)
