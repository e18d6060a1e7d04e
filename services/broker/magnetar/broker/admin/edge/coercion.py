"""Coercion of JSON values to the types of the routes, as Apache Pulsar's parser does it.

Pulsar's clients rely on it: some send numbers and booleans as strings. Coerced (observed with Apache Pulsar
4.0.7) are strings that contain a number or a boolean, fractions where a whole number is expected (truncated),
whole numbers where a boolean is expected, numbers and booleans where a string is expected, and for enums a
string with surrounding spaces or the index of the value. An empty string, the string "null" and null become 0
or false, or null where the type is nullable. Two kinds of values that Apache Pulsar accepts are refused:
numbers that are not finite, and unknown enum values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.json_types import ENUMS, OBJECTS, inner_types, members_of

_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""

_WHOLE: Final = re.compile(r"[+-]?\d{1,40}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_BOUNDS: Final = {"int": 2**31, "long": 2**63}


class JsonFraction(float):
    """A number with a fraction or an exponent; keeps its text for members that are strings."""

    text: str

    @classmethod
    def parse(cls, text: str) -> JsonFraction:
        """Parses a JSON number. Raises ValueError when it is out of range."""
        number = cls(text)
        if math.isinf(number):
            raise ValueError(f"{text[:40]} is out of range")
        number.text = text
        return number


def coerce(type_name: str, value: Any, name: str) -> Any:
    """Returns the value coerced to a type of the route table; `name` is used in error messages.

    A value that should be a list or an object but is not is returned unchanged, for the route to refuse.
    Raises Refused (400).
    """
    may_be_null = type_name.endswith("?")
    type_name = type_name.removesuffix("?")
    scalar = _SCALARS.get(type_name)
    if scalar is not None:
        if value is None or (type_name != "String" and _says_nothing(value)):
            return None if may_be_null else _NOTHING.get(type_name)
        return scalar(type_name, value, name)
    if type_name in ENUMS:
        return _enum(type_name, value)
    if type_name in OBJECTS:
        return _members(type_name, value)
    outer, inner = inner_types(type_name)
    if outer == "Map" and isinstance(value, dict):
        return {key: coerce(inner, item, key) for key, item in value.items()}
    if outer in ("List", "Set") and isinstance(value, list):
        return [coerce(inner, item, f"{name}[{index}]") for index, item in enumerate(value)]
    return value


def _members(type_name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    coerced = dict(value)
    for member, member_type in members_of(type_name):
        if member in value:
            coerced[member] = coerce(member_type, value[member], member)
    return coerced


def _says_nothing(value: Any) -> bool:
    return isinstance(value, str) and value.strip(_TRIMMED) in ("", "null")


def _whole(type_name: str, value: Any, name: str) -> int:
    number: int | None = None
    if isinstance(value, str):
        text = value.strip(_TRIMMED)
        number = int(text) if _WHOLE.fullmatch(text) else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = int(value)
    if number is None:
        raise Refused(400, f"{name} must be a whole number, not {_shown(value)}")
    if not -_BOUNDS[type_name] <= number < _BOUNDS[type_name]:
        raise Refused(400, f"{name} is out of range for the type {type_name}: {_shown(value)}")
    return number


def _double(_type_name: str, value: Any, name: str) -> float:
    number: float | None = None
    if isinstance(value, str):
        text = value.strip(_TRIMMED)
        number = float(text.rstrip("fFdD")) if _NUMBER.fullmatch(text) else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if number is None:
        raise Refused(400, f"{name} must be a number, not {_shown(value)}")
    if math.isinf(number):
        raise Refused(400, f"{name} is out of range for the type double: {_shown(value)}")
    return number


def _boolean(_type_name: str, value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    found = _BOOLEANS.get(value.strip(_TRIMMED)) if isinstance(value, str) else None
    if found is None:
        raise Refused(400, f"{name} must be true or false, not {_shown(value)}")
    return found


def _text(_type_name: str, value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonFraction):
        return value.text
    if isinstance(value, int):
        return str(value)
    raise Refused(400, f"{name} must be a string, not {_shown(value)}")


def _enum(type_name: str, value: Any) -> Any:
    """Returns the enum value that `value` denotes, or `value` unchanged, for the route to refuse."""
    texts = ENUMS[type_name].split()
    if isinstance(value, str):
        value = value.strip(_TRIMMED)
        index = int(value) if value not in texts and _WHOLE.fullmatch(value) else -1
    else:
        index = value if isinstance(value, int) and not isinstance(value, bool) else -1
    return texts[index] if 0 <= index < len(texts) else value


def _shown(value: Any) -> str:
    return repr(value)[:80]


_SCALARS: Final[dict[str, Callable[[str, Any, str], Any]]] = {
    "int": _whole,
    "long": _whole,
    "double": _double,
    "boolean": _boolean,
    "String": _text,
}
_NOTHING: Final[dict[str, Any]] = {"int": 0, "long": 0, "double": 0.0, "boolean": False}
"""The value of null for types that are not nullable; strings are."""
