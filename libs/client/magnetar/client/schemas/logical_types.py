"""Logical types of Avro: dates, times, decimals and UUIDs, and the numbers, bytes and texts that carry them.

A BigDecimal of Java without a precision is a text with the property `java-class`, as in Avro's reflection.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from magnetar.client.schemas.value_misfit import ValueMisfit, not_a
from magnetar.common.schemas.avro_types import AvroType, Fixed, Primitive
from magnetar.common.schemas.definition import shown

BIG_DECIMAL: Final = "java.math.BigDecimal"
"""Value of the property `java-class` of a text that holds a decimal."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class LogicalType:
    """The conversion of one logical type."""

    accepts: Callable[[Any], bool]
    """Whether a value is of the type."""
    encode: Callable[[Any], Any]
    """Returns what carries a value. Raises ValueMisfit."""
    decode: Callable[[Any], Any]
    """Returns the value. Raises ValueMisfit."""


def logical_type_of(avro_type: AvroType) -> LogicalType | None:
    """Returns the conversion that a type's properties name; None without one, or for one not known here."""
    if not isinstance(avro_type, Primitive | Fixed) or not avro_type.properties:
        return None
    properties = json.loads(avro_type.properties)
    name = properties.get("logicalType")
    if name == "decimal" and avro_type.kind in ("bytes", "fixed"):
        size = avro_type.size if isinstance(avro_type, Fixed) else None
        return _decimal(properties.get("precision"), properties.get("scale", 0), size)
    if is_text_decimal(avro_type):
        return _TEXT_DECIMAL
    return _BY_NAME.get((avro_type.kind, name)) if isinstance(name, str) else None


def is_text_decimal(avro_type: AvroType) -> bool:
    """Whether a type is the text of a decimal without a precision."""
    if not isinstance(avro_type, Primitive) or avro_type.kind != "string" or not avro_type.properties:
        return False
    return bool(json.loads(avro_type.properties).get("java-class") == BIG_DECIMAL)


def _date(value: Any) -> int:
    if not _is_date(value):
        raise not_a("a date", value)
    return int(value.toordinal()) - _EPOCH_DAY


def _date_of(days: int) -> date:
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise ValueMisfit(f"{days} days since 1970 are outside of date's years 1 to 9999") from None


def _is_date(value: Any) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _time(unit_us: int) -> LogicalType:
    def encode(value: Any) -> int:
        if not isinstance(value, time):
            raise not_a("a time", value)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return (seconds * 1_000_000 + value.microsecond) // unit_us

    def decode(units: int) -> time:
        us = units * unit_us
        if not 0 <= us < _DAY_US:
            raise ValueMisfit(f"{us} microseconds since midnight are outside of a day")
        return (_LOCAL_EPOCH + timedelta(microseconds=us)).time()

    return LogicalType(lambda value: isinstance(value, time), encode, decode)


def _moment(unit: timedelta) -> LogicalType:
    def encode(value: Any) -> int:
        if not isinstance(value, datetime):
            raise not_a("a datetime", value)
        if value.tzinfo is None:
            raise ValueMisfit(
                f"{shown(value)} has no time zone; give it one, for example with datetime.now(UTC), or use a "
                "local-timestamp"
            )
        return (value - _EPOCH) // unit

    def decode(units: int) -> datetime:
        return _after(_EPOCH, units, unit)

    return LogicalType(lambda value: isinstance(value, datetime) and value.tzinfo is not None, encode, decode)


def _local_moment(unit: timedelta) -> LogicalType:
    def encode(value: Any) -> int:
        if not isinstance(value, datetime):
            raise not_a("a datetime", value)
        if value.tzinfo is not None:
            raise ValueMisfit(
                f"{shown(value)} has a time zone; use a timestamp, or value.replace(tzinfo=None)"
            )
        return (value - _LOCAL_EPOCH) // unit

    def decode(units: int) -> datetime:
        return _after(_LOCAL_EPOCH, units, unit)

    return LogicalType(lambda value: isinstance(value, datetime) and value.tzinfo is None, encode, decode)


def _after(epoch: datetime, units: int, unit: timedelta) -> datetime:
    try:
        return epoch + units * unit
    except OverflowError:
        raise ValueMisfit(
            f"{units} times {unit} since 1970 is outside of datetime's years 1 to 9999"
        ) from None


def _decimal(precision: Any, scale: Any, size: int | None) -> LogicalType | None:
    """Returns the decimal as an unscaled number in two's complement, big-endian; None if it is invalid."""
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision):
        return None
    # Wide enough for every value, so that nothing is rounded; a context's own precision would round.
    context = decimal.Context(prec=precision + 1, traps=[decimal.Inexact, decimal.InvalidOperation])

    def encode(value: Any) -> bytes:
        if not isinstance(value, Decimal):
            raise not_a("a Decimal", value)
        try:
            unscaled = int(value.scaleb(scale, context).to_integral_exact(context=context))
        except (decimal.DecimalException, ValueError, OverflowError):
            unscaled = 10**precision
        if abs(unscaled) >= 10**precision:
            raise ValueMisfit(
                f"{shown(value)} does not fit a decimal of {precision} digits, {scale} after the point; "
                "round it"
            )
        width = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        try:
            return unscaled.to_bytes(size or width, "big", signed=True)
        except OverflowError:
            raise ValueMisfit(f"{shown(value)} does not fit the {size} bytes of its fixed") from None

    def decode(plain: bytes) -> Decimal:
        unscaled = int.from_bytes(plain, "big", signed=True)
        if abs(unscaled) >= 10**precision:
            raise ValueMisfit(f"a decimal of {len(plain)} bytes has more than {precision} digits")
        return Decimal(unscaled).scaleb(-scale, context)

    return LogicalType(lambda value: isinstance(value, Decimal), encode, decode)


def _decimal_text(value: Any) -> str:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise not_a("a finite Decimal", value)
    return str(value)


def _decimal_of_text(plain: Any) -> Decimal:
    """Returns the decimal of a text, or of a number in JSON."""
    try:
        found = Decimal(plain)
    except (decimal.InvalidOperation, TypeError, ValueError):
        raise ValueMisfit(f"{shown(plain)} is not a decimal number") from None
    if not found.is_finite() or isinstance(plain, bool):
        raise ValueMisfit(f"{shown(plain)} is not a finite decimal number")
    return found


def _uuid_text(value: Any) -> str:
    if not isinstance(value, UUID):
        raise not_a("a UUID", value)
    return str(value)


def _uuid_of_text(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueMisfit(f"{shown(text)} is not a UUID") from None


_TEXT_DECIMAL: Final = LogicalType(lambda value: isinstance(value, Decimal), _decimal_text, _decimal_of_text)

_BY_NAME: Final = {
    ("int", "date"): LogicalType(_is_date, _date, _date_of),
    ("int", "time-millis"): _time(1_000),
    ("long", "time-micros"): _time(1),
    ("long", "timestamp-millis"): _moment(_MILLISECOND),
    ("long", "timestamp-micros"): _moment(_MICROSECOND),
    ("long", "local-timestamp-millis"): _local_moment(_MILLISECOND),
    ("long", "local-timestamp-micros"): _local_moment(_MICROSECOND),
    ("string", "uuid"): LogicalType(lambda value: isinstance(value, UUID), _uuid_text, _uuid_of_text),
}
