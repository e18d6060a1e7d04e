"""KEY_VALUE definitions: two definitions behind their lengths, and their types among the properties.

Lengths are signed 32-bit numbers, big-endian; -1 and 0 mean no definition.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Final, Literal

from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType, shown

Side = Literal["key", "value"]

ENCODING: Final = "kv.encoding.type"
INLINE: Final = "INLINE"
"""Key and value both in the payload; the default."""
SEPARATED: Final = "SEPARATED"
"""The key is the message's key."""

_LENGTH: Final = struct.Struct(">i")
_TYPES: Final = {each.name: each for each in SchemaType if each is not SchemaType.AUTO_CONSUME} | {
    "BYTES": SchemaType.NONE
}
"""Types of parts by name; a part of type BYTES is plain bytes."""


def split(data: bytes) -> tuple[bytes, bytes]:
    """Returns the definitions of key and value. Raises InvalidSchema."""
    key, rest = _first_part(data, "key")
    value, rest = _first_part(rest, "value")
    if rest:
        raise InvalidSchema(f"the KEY_VALUE definition has {len(rest)} bytes after its value")
    return key, value


def join(key: bytes, value: bytes) -> bytes:
    """Returns the data of a KEY_VALUE definition."""
    return b"".join((_LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value))


def key_and_value(definition: SchemaDefinition) -> tuple[SchemaDefinition, SchemaDefinition]:
    """Returns the two definitions that a KEY_VALUE definition consists of. Raises InvalidSchema."""
    key, value = split(definition.data)
    return _part(definition.properties, "key", key), _part(definition.properties, "value", value)


def identity_properties(properties: Mapping[str, str]) -> tuple[str, str, str]:
    """Returns the properties by which readers decode: the types of key and value, and the encoding."""
    key, value = (properties.get(f"{side}.schema.type", "BYTES") for side in ("key", "value"))
    return key, value, properties.get(ENCODING, INLINE)


def check_properties(properties: Mapping[str, str]) -> None:
    """Raises InvalidSchema for an unknown encoding."""
    encoding = properties.get(ENCODING, INLINE)
    if encoding not in (INLINE, SEPARATED):
        raise InvalidSchema(f"property {ENCODING} is {shown(encoding)}; use {INLINE} or {SEPARATED}")


def _first_part(data: bytes, side: Side) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise InvalidSchema(f"the KEY_VALUE definition ends before the length of its {side}")
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + max(length, 0)
    if length < -1 or end > len(data):
        raise InvalidSchema(
            f"the KEY_VALUE definition says {length} bytes of {side}, and "
            f"{len(data) - _LENGTH.size} bytes follow"
        )
    return data[_LENGTH.size : end], data[end:]


def _part(properties: Mapping[str, str], side: Side, data: bytes) -> SchemaDefinition:
    name = properties.get(f"{side}.schema.type", "BYTES")
    part_type = _TYPES.get(name)
    if part_type is None:
        raise InvalidSchema(f"property {side}.schema.type is {shown(name)}, not the name of a schema type")
    return SchemaDefinition(part_type, data, _part_properties(properties, side))


def _part_properties(properties: Mapping[str, str], side: Side) -> dict[str, str]:
    text = properties.get(f"{side}.schema.properties") or "{}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise InvalidSchema(f"property {side}.schema.properties is {shown(text)}, not a JSON object of texts")
    return found
