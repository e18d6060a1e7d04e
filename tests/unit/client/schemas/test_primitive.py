"""Single values are encoded as Java's client encodes them, and what does not fit is refused with a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest
from magnetar.client.schemas import primitive
from magnetar.client.schemas.primitive import BY_TYPE, Primitive
from magnetar.client.schemas.schema import SchemaError, SchemaInfo
from magnetar.common.schemas.definition import SchemaType
from magnetar.common.schemas.rules import validate
from pulsar.schema import BytesSchema, StringSchema

MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("schema", "value", "payload"),
    [
        (primitive.Bytes(), b"\x00\xff", "00ff"),
        (primitive.String(), "Zoë 語", "5a6fc3ab20e8aa9e"),
        (primitive.Bool(), True, "01"),
        (primitive.Bool(), False, "00"),
        (primitive.Int8(), -128, "80"),
        (primitive.Int16(), -2, "fffe"),
        (primitive.Int32(), 0x01020304, "01020304"),
        (primitive.Int64(), -(2**63), "8000000000000000"),
        (primitive.Float32(), 0.15625, "3e200000"),
        (primitive.Float64(), -0.1, "bfb999999999999a"),
        (primitive.Date(), MOMENT.replace(microsecond=123_000), "0000018df4d80853"),
        (primitive.Timestamp(), datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "f" * 16),
        (primitive.Time(), time(0, 0, 1, 5_000), "00000000000003ed"),
        (primitive.Instant(), MOMENT, "0000000065e078d7" + "075bca00"),
        (primitive.Instant(), datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), "f" * 16 + "1dcd6500"),
        (primitive.LocalDate(), date(1969, 12, 31), "f" * 16),
        (primitive.LocalTime(), time(0, 0, 0, 1), "00000000000003e8"),
        (primitive.LocalDateTime(), datetime(1970, 1, 3, 0, 0, 0, 2), "0" * 15 + "2" + "00000000000007d0"),
    ],
)
def test_a_value_has_the_bytes_of_java(schema: Primitive[Any], value: Any, payload: str) -> None:
    encoded = schema.encode(value)
    assert encoded.hex() == payload
    for each in (encoded, memoryview(encoded)):
        decoded = schema.decode(each, b"")
        assert decoded == value
        assert type(decoded) is type(value)


@pytest.mark.parametrize("number", sorted(BY_TYPE))
def test_every_primitive_registers_a_definition_that_brokers_take(number: int) -> None:
    info = BY_TYPE[number]().info
    if number == SchemaType.NONE:
        assert info is None
        return
    assert info is not None
    assert info.type == number
    validate(info.definition())
    assert SchemaInfo.from_wire(info.to_wire()) == info


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (primitive.Bytes(), "text", "not bytes, and the producer has no other schema"),
        (primitive.String(), b"bytes", "is bytes, not text"),
        (primitive.String(), "\ud800", "cannot be encoded as UTF-8"),
        (primitive.Bool(), 1, "is int, not a bool"),
        (primitive.Int8(), 128, "outside of INT8's range"),
        (primitive.Int32(), True, "is bool, not an int"),
        (primitive.Int64(), 1.0, "is float, not an int"),
        (primitive.Int64(), 2**63, "outside of INT64's range"),
        (primitive.Float32(), 1e39, "too large for Float; use Float64"),
        (primitive.Float64(), "1", "is str, not a float"),
        (primitive.Date(), datetime(2024, 1, 1), "has no time zone"),
        (primitive.Instant(), date(2024, 1, 1), "is date, not a datetime"),
        (primitive.LocalDate(), MOMENT, "is datetime, not a date"),
        (primitive.LocalDateTime(), MOMENT, "has a time zone"),
        (primitive.LocalTime(), 5, "is int, not a time"),
    ],
)
def test_a_value_of_another_type_is_refused(schema: Primitive[Any], value: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        schema.encode(value)


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        (primitive.String(), b"\xff", "not UTF-8 at byte 0"),
        (primitive.Bool(), b"", "a payload of 0 bytes is not BOOLEAN, which has 1"),
        (primitive.Int32(), b"12345", "not INT32, which has 4"),
        (primitive.Instant(), b"\x7f" * 12, "outside of datetime's years"),
        (primitive.Date(), b"\x7f" * 8, "outside of datetime's years"),
        (primitive.LocalDate(), b"\x7f" * 8, "outside of date's years"),
        (primitive.LocalTime(), b"\xff" * 8, "outside of a day"),
        (primitive.LocalDateTime(), bytes(8) + b"\x7f" * 8, "outside of a day"),
    ],
)
def test_a_payload_of_another_schema_is_refused(schema: Primitive[Any], payload: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        schema.decode(payload, b"")


def test_moments_of_any_zone_are_the_same_moment() -> None:
    abroad = MOMENT.astimezone(timezone(timedelta(hours=-7)))
    assert primitive.Instant().encode(abroad) == primitive.Instant().encode(MOMENT)
    assert primitive.Date().decode(primitive.Date().encode(MOMENT)) == MOMENT.replace(microsecond=123_000)


def test_texts_and_bytes_are_those_of_the_other_python_client() -> None:
    assert StringSchema().decode(primitive.String().encode("Zoë")) == "Zoë"
    assert primitive.String().decode(StringSchema().encode("Zoë")) == "Zoë"
    assert primitive.Bytes().decode(BytesSchema().encode(b"\x00")) == b"\x00"
