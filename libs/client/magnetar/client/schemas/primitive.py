"""Schemas of single values, encoded as Pulsar's Java client does: numbers big-endian, dates as numbers.

Java's names and the types of Python that they stand for:

| schema | value | payload |
| --- | --- | --- |
| `Date`, `Timestamp` | aware datetime | milliseconds since 1970, 8 bytes |
| `Time` | time, UTC | milliseconds since midnight, 8 bytes |
| `Instant` | aware datetime | seconds since 1970 and nanoseconds, 12 bytes |
| `LocalDate` | date | days since 1970, 8 bytes |
| `LocalTime` | time | nanoseconds since midnight, 8 bytes |
| `LocalDateTime` | naive datetime | days since 1970 and nanoseconds since midnight, 16 bytes |

A datetime of Python has microseconds: what is finer in a payload is cut off, and so is what is finer than the
milliseconds of `Date`, `Time` and `Timestamp` in a value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, Generic, TypeVar

from magnetar.client.schemas.schema import Payload, SchemaError, SchemaInfo
from magnetar.common.schemas.definition import SchemaType, shown

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MS: Final = 86_400_000
_DAY_NS: Final = 86_400_000_000_000
_MILLISECOND: Final = timedelta(milliseconds=1)

_LONG: Final = struct.Struct(">q")
_INSTANT: Final = struct.Struct(">qi")
_LOCAL_DATE_TIME: Final = struct.Struct(">qq")


@dataclass(frozen=True, slots=True)
class Primitive(Generic[T]):
    """A schema whose payloads do not depend on versions."""

    info: SchemaInfo | None
    to_payload: Callable[[T], bytes]
    to_value: Callable[[Payload], T]

    def encode(self, value: T) -> bytes:
        """Returns the payload. Raises SchemaError."""
        return self.to_payload(value)

    def decode(self, payload: Payload, version: bytes = b"") -> T:
        """Returns the value; the version does not matter. Raises SchemaError."""
        return self.to_value(payload)


def Bytes() -> Primitive[bytes]:
    """Returns the schema of payloads as they are: the topic gets no schema."""
    return Primitive(None, _bytes_payload, bytes)


def String() -> Primitive[str]:
    """Returns the schema of text, UTF-8."""
    return Primitive(_info("String", SchemaType.STRING), _text_payload, _text)


def Bool() -> Primitive[bool]:
    """Returns the schema of truth values, 1 byte."""

    def encode(value: bool) -> bytes:
        if not isinstance(value, bool):
            raise _wrong_type("a bool", value)
        return b"\x01" if value else b"\x00"

    one = struct.Struct("B")
    info = _info("Boolean", SchemaType.BOOLEAN)
    return Primitive(info, encode, lambda payload: _unpacked(one, payload, "BOOLEAN")[0] != 0)


def Int8() -> Primitive[int]:
    """Returns the schema of integers of 1 byte."""
    return _integers("INT8", SchemaType.INT8, ">b")


def Int16() -> Primitive[int]:
    """Returns the schema of integers of 2 bytes."""
    return _integers("INT16", SchemaType.INT16, ">h")


def Int32() -> Primitive[int]:
    """Returns the schema of integers of 4 bytes."""
    return _integers("INT32", SchemaType.INT32, ">i")


def Int64() -> Primitive[int]:
    """Returns the schema of integers of 8 bytes."""
    return _integers("INT64", SchemaType.INT64, ">q")


def Float32() -> Primitive[float]:
    """Returns the schema of floating-point numbers of 4 bytes, to which values are rounded."""
    return _floats("Float", SchemaType.FLOAT, ">f")


def Float64() -> Primitive[float]:
    """Returns the schema of floating-point numbers of 8 bytes."""
    return _floats("Double", SchemaType.DOUBLE, ">d")


def Date() -> Primitive[datetime]:
    """Returns the schema of java.util.Date."""
    return _milliseconds("Date", SchemaType.DATE)


def Timestamp() -> Primitive[datetime]:
    """Returns the schema of java.sql.Timestamp."""
    return _milliseconds("Timestamp", SchemaType.TIMESTAMP)


def Time() -> Primitive[time]:
    """Returns the schema of java.sql.Time, whose midnight is that of Java's time zone: run Java in UTC."""

    def encode(value: time) -> bytes:
        return _LONG.pack(_ns_of_day(value) // 1_000_000)

    def decode(payload: Payload) -> time:
        return _time_of_day(_unpacked(_LONG, payload, "TIME")[0] % _DAY_MS * 1_000_000)

    return Primitive(_info("Time", SchemaType.TIME), encode, decode)


def Instant() -> Primitive[datetime]:
    """Returns the schema of java.time.Instant."""

    def encode(value: datetime) -> bytes:
        elapsed = _aware(value) - _EPOCH
        return _INSTANT.pack(elapsed.days * 86_400 + elapsed.seconds, elapsed.microseconds * 1_000)

    def decode(payload: Payload) -> datetime:
        seconds, ns = _unpacked(_INSTANT, payload, "INSTANT")
        return _since_epoch(seconds, ns // 1_000)

    return Primitive(_info("Instant", SchemaType.INSTANT), encode, decode)


def LocalDate() -> Primitive[date]:
    """Returns the schema of java.time.LocalDate."""

    def encode(value: date) -> bytes:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise _wrong_type("a date", value)
        return _LONG.pack(value.toordinal() - _EPOCH_DAY)

    def decode(payload: Payload) -> date:
        return _day(_unpacked(_LONG, payload, "LOCAL_DATE")[0])

    return Primitive(_info("LocalDate", SchemaType.LOCAL_DATE), encode, decode)


def LocalTime() -> Primitive[time]:
    """Returns the schema of java.time.LocalTime."""

    def encode(value: time) -> bytes:
        return _LONG.pack(_ns_of_day(value))

    def decode(payload: Payload) -> time:
        return _time_of_day(_unpacked(_LONG, payload, "LOCAL_TIME")[0])

    return Primitive(_info("LocalTime", SchemaType.LOCAL_TIME), encode, decode)


def LocalDateTime() -> Primitive[datetime]:
    """Returns the schema of java.time.LocalDateTime."""

    def encode(value: datetime) -> bytes:
        if not isinstance(value, datetime):
            raise _wrong_type("a datetime", value)
        if value.tzinfo is not None:
            raise SchemaError(
                f"{shown(value)} has a time zone, which LocalDateTime does not carry; use Instant, or "
                "value.replace(tzinfo=None)"
            )
        return _LOCAL_DATE_TIME.pack(value.toordinal() - _EPOCH_DAY, _ns_of_day(value.time()))

    def decode(payload: Payload) -> datetime:
        days, ns = _unpacked(_LOCAL_DATE_TIME, payload, "LOCAL_DATE_TIME")
        return datetime.combine(_day(days), _time_of_day(ns))

    return Primitive(_info("LocalDateTime", SchemaType.LOCAL_DATE_TIME), encode, decode)


BY_TYPE: Final[dict[int, Callable[[], Primitive[Any]]]] = {
    SchemaType.NONE: Bytes,
    SchemaType.STRING: String,
    SchemaType.BOOLEAN: Bool,
    SchemaType.INT8: Int8,
    SchemaType.INT16: Int16,
    SchemaType.INT32: Int32,
    SchemaType.INT64: Int64,
    SchemaType.FLOAT: Float32,
    SchemaType.DOUBLE: Float64,
    SchemaType.DATE: Date,
    SchemaType.TIME: Time,
    SchemaType.TIMESTAMP: Timestamp,
    SchemaType.INSTANT: Instant,
    SchemaType.LOCAL_DATE: LocalDate,
    SchemaType.LOCAL_TIME: LocalTime,
    SchemaType.LOCAL_DATE_TIME: LocalDateTime,
}
"""Schemas by the wire's type number."""


def _info(name: str, number: SchemaType) -> SchemaInfo:
    return SchemaInfo(name, number, b"")


def _integers(name: str, number: SchemaType, layout: str) -> Primitive[int]:
    packed = struct.Struct(layout)

    def encode(value: int) -> bytes:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong_type("an int", value)
        try:
            return packed.pack(value)
        except struct.error:
            bits = packed.size * 8 - 1
            raise SchemaError(
                f"{shown(value)} is outside of {name}'s range, -2**{bits} to 2**{bits} - 1; use a larger type"
            ) from None

    return Primitive(_info(name, number), encode, lambda payload: int(_unpacked(packed, payload, name)[0]))


def _floats(name: str, number: SchemaType, layout: str) -> Primitive[float]:
    packed = struct.Struct(layout)

    def encode(value: float) -> bytes:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _wrong_type("a float", value)
        try:
            return packed.pack(value)
        except (struct.error, OverflowError):
            raise SchemaError(f"{shown(value)} is too large for {name}; use Float64") from None

    return Primitive(_info(name, number), encode, lambda payload: float(_unpacked(packed, payload, name)[0]))


def _milliseconds(name: str, number: SchemaType) -> Primitive[datetime]:
    def encode(value: datetime) -> bytes:
        return _LONG.pack((_aware(value) - _EPOCH) // _MILLISECOND)

    def decode(payload: Payload) -> datetime:
        seconds, ms = divmod(_unpacked(_LONG, payload, name.upper())[0], 1_000)
        return _since_epoch(seconds, ms * 1_000)

    return Primitive(_info(name, number), encode, decode)


def _bytes_payload(value: bytes) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise SchemaError(
            f"{shown(value)} is not bytes, and the producer has no other schema; encode it, or give the "
            "producer a schema"
        )
    return bytes(value)


def _text_payload(value: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong_type("text", value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise SchemaError(f"{shown(value)} cannot be encoded as UTF-8: {error.reason}") from None


def _text(payload: Payload) -> str:
    try:
        return str(payload, "utf-8")
    except UnicodeDecodeError as error:
        raise SchemaError(
            f"a payload of {len(payload):,} bytes is not UTF-8 at byte {error.start}, so it was not written "
            "with STRING; consume the topic with the schema it was written with"
        ) from None


def _unpacked(packed: struct.Struct, payload: Payload, name: str) -> tuple[Any, ...]:
    if len(payload) != packed.size:
        raise SchemaError(
            f"a payload of {len(payload):,} bytes is not {name}, which has {packed.size}; consume the topic "
            "with the schema it was written with"
        )
    return packed.unpack(payload)


def _aware(value: datetime) -> datetime:
    if not isinstance(value, datetime):
        raise _wrong_type("a datetime", value)
    if value.tzinfo is None:
        raise SchemaError(
            f"{shown(value)} has no time zone; give it one, for example with datetime.now(UTC), or use "
            "LocalDateTime"
        )
    return value


def _since_epoch(seconds: int, us: int) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=us)
    except OverflowError:
        raise SchemaError(
            f"a payload of {seconds} seconds since 1970 is outside of datetime's years 1 to 9999; consume as "
            "bytes"
        ) from None


def _ns_of_day(value: time) -> int:
    if not isinstance(value, time):
        raise _wrong_type("a time", value)
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) * 1_000


def _time_of_day(ns: int) -> time:
    if not 0 <= ns < _DAY_NS:
        raise SchemaError(f"a payload of {ns} ns since midnight is outside of a day; consume as bytes")
    seconds, us = divmod(ns // 1_000, 1_000_000)
    minutes, second = divmod(seconds, 60)
    return time(minutes // 60, minutes % 60, second, us)


def _day(days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise SchemaError(
            f"a payload of {days} days since 1970 is outside of date's years 1 to 9999; consume as bytes"
        ) from None


def _wrong_type(expected: str, value: object) -> SchemaError:
    return SchemaError(f"{shown(value)} is {type(value).__name__}, not {expected}; convert it before sending")
