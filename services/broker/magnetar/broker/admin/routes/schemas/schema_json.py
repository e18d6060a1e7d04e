"""Schemas in the JSON of the admin API: type names, and definitions as text.

A key-value definition is `{"key": ..., "value": ...}` in JSON; clients send it, and metadata stores it, as
two length-prefixed definitions.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

from magnetar.broker.admin.edge.call import text_map
from magnetar.broker.admin.edge.errors import Refused
from magnetar.common.errors import InvalidSchema
from magnetar.common.metadata.values import SchemaRecord
from magnetar.common.schemas import key_value
from magnetar.common.schemas.definition import SchemaType, type_name
from magnetar.common.wire.pulsar_pb2 import Schema

STORED_TYPES: Final = {
    each.name: each for each in SchemaType if SchemaType.NONE < each < SchemaType.AUTO_CONSUME
}
"""The schema types that can be stored. BYTES has no schema, and the AUTO types exist only in clients."""


def schema_of(body: object, name: str) -> Schema:
    """Parses a posted schema; its definition is not checked here.

    Raises Refused: 400 for a wrong shape, 422 for an unknown type; InvalidSchema.
    """
    if not isinstance(body, dict):
        raise Refused(400, "the body must be an object with type, schema and properties")
    given_type, text = body.get("type"), body.get("schema")
    if not isinstance(given_type, str):
        raise Refused(400, "type must be the name of a schema type")
    if not isinstance(text, str | None):
        raise Refused(400, "schema must be a string with the definition")
    number = STORED_TYPES.get(given_type)
    if number is None:
        raise Refused(
            422, f"{given_type} is not a schema type that can be stored: use one of {', '.join(STORED_TYPES)}"
        )
    data = _pair_bytes(text or "") if number == SchemaType.KEY_VALUE else (text or "").encode()
    schema = Schema(name=name, type=cast("Schema.Type.ValueType", int(number)), schema_data=data)
    properties = body.get("properties")
    for key, value in sorted(text_map({} if properties is None else properties).items()):
        schema.properties.add(key=key, value=value)
    return schema


def schema_json(record: SchemaRecord) -> dict[str, Any]:
    """Returns the JSON of a stored version."""
    return {
        "version": record.version,
        "type": type_name(record.type),
        "timestamp": record.created_ms,
        "data": _text_of(record),
        "properties": dict(record.properties),
    }


def _pair_bytes(text: str) -> bytes:
    try:
        pair = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"the definition of a KEY_VALUE schema is not JSON: {error}") from error
    if not isinstance(pair, dict) or not {"key", "value"} <= pair.keys():
        raise InvalidSchema(
            'the definition of a KEY_VALUE schema has no key and value: give {"key": ..., "value": ...}, '
            'with "" for a part without a definition'
        )
    key, value = (b"" if pair[side] == "" else _compact(pair[side]).encode() for side in ("key", "value"))
    return key_value.join(key, value)


def _text_of(record: SchemaRecord) -> str:
    text = record.data.decode(errors="replace")
    if record.type != SchemaType.KEY_VALUE:
        return text
    try:
        key, value = (json.loads(part) if part else "" for part in key_value.split(record.data))
    except (InvalidSchema, ValueError, RecursionError):
        return text  # an earlier release stored what is not a pair
    return _compact({"key": key, "value": value})


def _compact(value: Any) -> str:
    """Returns JSON as clients write definitions: without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
