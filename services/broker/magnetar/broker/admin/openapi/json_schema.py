"""JSON Schemas of the types that routes name.

A name is a scalar (`int`, `String` ...), an enum or object of json_types, or a container: `List<T>`,
`Set<T>`, and `Map<T>` or `Map<Key, T>`, whose keys are strings in JSON anyway. A scalar followed by `?` is
nullable in a body, and null is not 0 or false then; a string with `?` may be null in an answer.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.admin.edge.json_types import (
    ENUMS,
    INT32_MAX,
    INT64_MAX,
    OBJECTS,
    inner_types,
    members_of,
)

SCALARS: Final[dict[str, dict[str, Any]]] = {
    "int": {"type": "integer", "format": "int32", "minimum": -INT32_MAX - 1, "maximum": INT32_MAX},
    "long": {"type": "integer", "format": "int64", "minimum": -INT64_MAX - 1, "maximum": INT64_MAX},
    "long|null": {"type": ["integer", "null"], "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "boolean": {"type": "boolean"},
    "String": {"type": "string"},
    "String?": {"type": ["string", "null"]},
    "Any": {},
    "Map": {"type": "object"},
}
"""Types without a schema of their own in the document."""


def schema_of(type_name: str) -> dict[str, Any]:
    """Returns the schema of a type. Raises LookupError when the type is not declared."""
    if type_name not in SCALARS:
        type_name = type_name.removesuffix("?")
    if type_name in SCALARS:
        return SCALARS[type_name]
    if type_name in ENUMS or type_name in OBJECTS:
        return {"$ref": f"#/components/schemas/{type_name}"}
    outer, inner = inner_types(type_name)
    if outer in ("List", "Set"):
        return {"type": "array", "items": schema_of(inner)}
    if outer == "Map":
        return {"type": "object", "additionalProperties": schema_of(inner)}
    if not outer:
        raise LookupError(f"the type {type_name!r} is not declared: json_types.py is where")
    raise LookupError(f"{type_name!r} is neither a list, a set nor a map")


def declared() -> dict[str, dict[str, Any]]:
    """Returns the schema of every type that json_types declares."""
    enums = {name: {"type": "string", "enum": texts.split()} for name, texts in ENUMS.items()}
    objects = {
        name: {
            "type": "object",
            "properties": {member: schema_of(type_name) for member, type_name in members_of(name)},
        }
        for name in OBJECTS
    }
    return {**enums, **objects}
