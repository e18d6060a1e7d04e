"""Schemas in the JSON of the admin API: type names, and definitions as text that is validated.

A key-value definition is `{"key": ..., "value": ...}` in JSON; clients send it, and metadata stores it, as
two length-prefixed definitions.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

from magnetar.broker.admin.edge.call import text_map
from magnetar.broker.admin.edge.errors import Refused
from magnetar.common.metadata.values import SchemaRecord
from magnetar.common.wire.pulsar_pb2 import Schema

TYPES: Final = {
    "STRING": Schema.String,
    "JSON": Schema.Json,
    "PROTOBUF": Schema.Protobuf,
    "AVRO": Schema.Avro,
    "BOOLEAN": Schema.Bool,
    "INT8": Schema.Int8,
    "INT16": Schema.Int16,
    "INT32": Schema.Int32,
    "INT64": Schema.Int64,
    "FLOAT": Schema.Float,
    "DOUBLE": Schema.Double,
    "DATE": Schema.Date,
    "TIME": Schema.Time,
    "TIMESTAMP": Schema.Timestamp,
    "KEY_VALUE": Schema.KeyValue,
    "INSTANT": Schema.Instant,
    "LOCAL_DATE": Schema.LocalDate,
    "LOCAL_TIME": Schema.LocalTime,
    "LOCAL_DATE_TIME": Schema.LocalDateTime,
    "PROTOBUF_NATIVE": Schema.ProtobufNative,
}
"""The schema types that can be stored. BYTES has no schema, and the AUTO types exist only in clients."""

_NAMES: Final = {number: name for name, number in TYPES.items()}
_WITH_DEFINITION: Final = frozenset(
    {Schema.String, Schema.Json, Schema.Protobuf, Schema.Avro, Schema.KeyValue, Schema.ProtobufNative}
)
_STRUCTURES: Final = frozenset({Schema.Json, Schema.Protobuf, Schema.Avro, Schema.ProtobufNative})
_DEPTH_MAX: Final = 64

_AVRO_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_AVRO_NEEDS: Final = {
    "record": ("name", "fields"),
    "error": ("name", "fields"),
    "enum": ("name", "symbols"),
    "fixed": ("name", "size"),
    "array": ("items",),
    "map": ("values",),
}


def schema_of(body: object, name: str) -> Schema:
    """Parses a posted schema. Raises Refused: 400 for a wrong shape, 422 for an invalid schema."""
    if not isinstance(body, dict):
        raise Refused(400, "the body must be an object with type, schema and properties")
    type_name, text = body.get("type"), body.get("schema")
    if not isinstance(type_name, str):
        raise Refused(400, "type must be the name of a schema type")
    if not isinstance(text, str | None):
        raise Refused(400, "schema must be a string with the definition")
    number = TYPES.get(type_name)
    if number is None:
        raise Refused(
            422, f"{type_name} is not a schema type that can be stored: use one of {', '.join(TYPES)}"
        )
    schema = Schema(name=name, type=number, schema_data=_definition(type_name, number, text or ""))
    properties = body.get("properties")
    for key, value in sorted(text_map({} if properties is None else properties).items()):
        schema.properties.add(key=key, value=value)
    return schema


def schema_json(record: SchemaRecord) -> dict[str, Any]:
    """Returns the JSON of a stored version."""
    return {
        "version": record.version,
        "type": _NAMES.get(cast("Schema.Type.ValueType", record.type), "NONE"),
        "timestamp": record.created_ms,
        "data": _text_of(record),
        "properties": dict(record.properties),
    }


def _definition(type_name: str, number: Schema.Type.ValueType, text: str) -> bytes:
    if number not in _WITH_DEFINITION and text:
        raise Refused(422, f"a schema of type {type_name} has no definition: leave schema empty")
    if number == Schema.KeyValue:
        return _pair_bytes(text)
    if number in _STRUCTURES:
        definition = _json(type_name, text)
        problem = _avro_problem(definition, _DEPTH_MAX) if number == Schema.Avro else None
        if problem is not None:
            raise _invalid(type_name, problem)
    return text.encode()


def _pair_bytes(text: str) -> bytes:
    pair = _json("KEY_VALUE", text)
    if not isinstance(pair, dict) or not {"key", "value"} <= pair.keys():
        raise _invalid("KEY_VALUE", "it has no key and value")
    parts = [
        b"" if pair[side] == "" else json.dumps(pair[side], separators=(",", ":")).encode()
        for side in ("key", "value")
    ]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _text_of(record: SchemaRecord) -> str:
    text = record.data.decode(errors="replace")
    if record.type != Schema.KeyValue:
        return text
    data, parts = record.data, []
    for _ in range(2):
        end = 4 + int.from_bytes(data[:4], "big")
        part, data = data[4:end], data[end:]
        try:
            parts.append(json.loads(part) if part else "")
        except ValueError:
            return text  # a client stored something else
    return json.dumps({"key": parts[0], "value": parts[1]}, separators=(",", ":"))


def _json(type_name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(type_name, f"not JSON: {error}") from error


def _invalid(type_name: str, why: str) -> Refused:
    return Refused(422, f"Invalid schema definition data for {type_name} schema: {why}")


def _avro_problem(value: object, depth: int) -> str | None:
    """Returns an error if this is not a valid Avro schema in outline; None if it may be valid."""
    if depth == 0:
        return f"it is nested more than {_DEPTH_MAX} deep"
    if isinstance(value, str):
        return None if value in _AVRO_PRIMITIVES or depth < _DEPTH_MAX else f"{value!r} is not a type"
    if isinstance(value, list):
        problems = [_avro_problem(each, depth - 1) for each in value]
        return next((each for each in problems if each is not None), None)
    if not isinstance(value, dict) or "type" not in value:
        return "an object without a type"
    kind = value["type"]
    if not isinstance(kind, str):
        return _avro_problem(kind, depth - 1)
    missing = [each for each in _AVRO_NEEDS.get(kind, ()) if each not in value]
    if missing:
        return f"a {kind} without {missing[0]}"
    if kind in ("record", "error"):
        return _fields_problem(value["fields"], depth)
    inner = {"array": "items", "map": "values"}.get(kind)
    return None if inner is None else _avro_problem(value[inner], depth - 1)


def _fields_problem(fields: object, depth: int) -> str | None:
    if not isinstance(fields, list):
        return "fields that are not a list"
    for each in fields:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            return "a field without a name"
        problem = _avro_problem(each.get("type"), depth - 1)
        if problem is not None:
            return f"field {each['name']!r}: {problem}"
    return None
