"""Defaults of Avro fields: whether a default can be encoded as its field's type.

The rules are those by which Apache Avro 1.11.4 encodes the default of a field that a writer lacks
(ResolvingGrammarGenerator.encode), because that is what a reader in Java does. They are more lenient than
Avro's specification: a number of any kind is a default of an int, text of any length one of a fixed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from magnetar.common.schemas.avro_types import (
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    described,
)
from magnetar.common.schemas.definition import shown

DEPTH_MAX: Final = 64
"""Nested values of one default."""

_JAVA_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)", re.ASCII)


def problem(default: Any, avro_type: AvroType, depth: int = 0) -> str:
    """Returns why a default, as parsed JSON, cannot be encoded as the type; empty when it can.

    A union takes only defaults of its first branch. The records of the type have to be complete.
    """
    if depth > DEPTH_MAX:
        return f"it is nested more than {DEPTH_MAX} deep"
    match avro_type:
        case Primitive(kind=kind):
            return "" if _is_primitive(default, kind) else f"{shown(default)} is not a default of type {kind}"
        case Union(branches=branches):
            found = problem(default, branches[0], depth + 1) if branches else "the union has no branch"
            return f"{found} (a union's default is of its first branch)" if found else ""
        case Enumeration(symbols=symbols):
            is_symbol = isinstance(default, str) and default in symbols
            return "" if is_symbol else f"{shown(default)} is not a symbol of {described(avro_type)}"
        case Fixed():
            is_text = isinstance(default, str)
            return "" if is_text else f"{shown(default)} is not text, as defaults of a fixed are"
        case Array(items=items):
            # Java encodes an empty array for a default that is not an array.
            values = list(default.values()) if isinstance(default, dict) else default
            return _first(values if isinstance(values, list) else [], items, depth)
        case Map(values=member):
            return _first(list(default.values()) if isinstance(default, dict) else [], member, depth)
        case Record():
            return _record_problem(default if isinstance(default, dict) else {}, avro_type, depth)


def number_of_text(default: Any, avro_type: AvroType) -> Any:
    """Returns the number that Java reads from a text default of a float or double; other defaults unchanged.

    Raises ValueError for a text that is not a number.
    """
    if not isinstance(default, str) or avro_type.kind not in ("float", "double"):
        return default
    text = default.strip()
    if _JAVA_DOUBLE.fullmatch(text) is None:
        raise ValueError(f"{shown(default)} is not a number")
    return float(text if text.endswith("Infinity") else text.rstrip("fFdD"))


def _first(values: list[Any], member: AvroType, depth: int) -> str:
    return next(filter(None, (problem(each, member, depth + 1) for each in values)), "")


def _record_problem(default: dict[str, Any], record: Record, depth: int) -> str:
    for field in record.fields.values():
        if field.name in default:
            found = problem(default[field.name], field.type, depth + 1)
        elif field.default is None:
            found = "it is missing and has no default of its own"
        else:
            found = problem(json.loads(field.default), field.type, depth + 1)
        if found:
            return f"field {shown(field.name)}: {found}"
    return ""


def _is_primitive(default: Any, kind: str) -> bool:
    match kind:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "string" | "bytes":
            return isinstance(default, str)
        case _:
            return isinstance(default, int | float) and not isinstance(default, bool)
