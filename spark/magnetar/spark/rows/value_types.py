"""Decoded values fitted to a Spark type: values of JSON, which has few types, and of Avro."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Fit: TypeAlias = Callable[[Any], Any]

_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


class Unfit(ValueError):
    """A value that is not of the type."""


def fitting(kind: DataType, *, strict: bool) -> Fit:
    """Makes values what Arrow takes for the type. What does not fit is null, with `strict` Unfit is raised.

    Raises ValueError for a type that no value can have.
    """
    inner = _fit_of(kind, strict)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        try:
            return inner(value)
        except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
            if strict:
                raise Unfit(f"{_shown(value)} is no {kind.simpleString()}: {error}") from None
            return None

    return fit


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def _fit_of(kind: DataType, strict: bool) -> Fit:
    bits = _BITS.get(type(kind))
    if bits is not None:
        return partial(_integer, bits=bits)
    if isinstance(kind, FloatType | DoubleType):
        return _float
    if isinstance(kind, DecimalType):
        return partial(_decimal, kind=kind)
    if isinstance(kind, StructType):
        fields = [(field.name, fitting(field.dataType, strict=strict)) for field in kind.fields]
        return partial(_struct, fields=fields)
    if isinstance(kind, ArrayType):
        return partial(_array, element=fitting(kind.elementType, strict=strict))
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise ValueError(f"keys of maps are strings, not {kind.keyType.simpleString()}")
        return partial(_map, member=fitting(kind.valueType, strict=strict))
    for known, fit in _PLAIN.items():
        if isinstance(kind, known):
            return fit
    raise ValueError(f"values cannot be of type {kind.simpleString()}")


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, time):
        value = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit("no whole number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unfit("too large")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("no number")
    return float(value)


def _decimal(value: Any, kind: DecimalType) -> Decimal:
    if isinstance(value, bool | float):
        value = str(value)
    number = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale))
    if number.adjusted() >= kind.precision - kind.scale and number:
        raise Unfit("too many digits")
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return json.dumps(value, ensure_ascii=False, default=str)


def _binary(value: Any) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("neither true nor false")
    return value


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(value)


def _timestamp(value: Any) -> datetime:
    parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _local_timestamp(value: Any) -> datetime:
    parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return parsed.replace(tzinfo=None)


def _nothing(value: Any) -> None:
    raise Unfit("not null")


def _struct(value: Any, fields: list[tuple[str, Fit]]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit("no object")
    return {name: fit(value.get(name)) for name, fit in fields}


def _array(value: Any, element: Fit) -> list[Any]:
    if not isinstance(value, list):
        raise Unfit("no array")
    return [element(each) for each in value]


def _map(value: Any, member: Fit) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise Unfit("no object")
    return [(str(key), member(each)) for key, each in value.items()]


_PLAIN: Final[dict[type[DataType], Fit]] = {
    StringType: _text,
    BinaryType: _binary,
    BooleanType: _boolean,
    DateType: _date,
    TimestampType: _timestamp,
    TimestampNTZType: _local_timestamp,
    NullType: _nothing,
}
