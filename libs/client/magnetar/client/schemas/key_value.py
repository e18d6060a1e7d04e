"""The schema of messages with a typed key and a typed value, each encoded by a schema of its own.

INLINE puts both into the payload, behind their lengths; SEPARATED makes the key the message's key, by which
brokers route and compact. Lengths are signed 32-bit numbers, big-endian; -1 is null, and 0 an empty part, as
in Java's client.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar, cast

from magnetar.client.schemas.schema import (
    NO_SCHEMA,
    Payload,
    Schema,
    SchemaError,
    SchemaInfo,
    VersionedSchema,
    is_version,
    shown_version,
)
from magnetar.client.schemas.versions import WriterVersions
from magnetar.common.errors import InvalidSchema
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType, shown
from magnetar.common.schemas.key_value import ENCODING, INLINE, SEPARATED, join, key_and_value

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Encoding = Literal["INLINE", "SEPARATED"]

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class KeyAndValue(Generic[K, V]):
    """A value of the schema; None is null."""

    key: K | None
    value: V | None


class KeyValue(Generic[K, V]):
    """The schema of two schemas."""

    def __init__(self, key: Schema[K], value: Schema[V], encoding: Encoding = "SEPARATED") -> None:
        """`encoding` is SEPARATED, which makes the key the message's key, or INLINE, which is Java's default.

        Raises SchemaError.
        """
        if encoding not in (INLINE, SEPARATED):
            raise SchemaError(f"the encoding {shown(encoding)} does not exist; use {INLINE} or {SEPARATED}")
        self._key = key
        self._value = value
        self._encoding: Encoding = encoding
        self._versioned = [each for each in (key, value) if isinstance(each, VersionedSchema)]
        self._unreadable = WriterVersions[str]()
        self._info = _joined_info(key, value, encoding)

    @property
    def info(self) -> SchemaInfo | None:
        """The definition made of both schemas'."""
        return self._info

    @property
    def is_separated(self) -> bool:
        """Whether the key is the message's key."""
        return self._encoding == SEPARATED

    def encode(self, value: KeyAndValue[K, V]) -> bytes:
        """Returns the payload with both parts. Raises SchemaError, also when the schema is SEPARATED."""
        if self.is_separated:
            raise SchemaError("a SEPARATED key and value do not fit into one payload; use encode_parts")
        key, payload = self._parts(value)
        return b"".join((_part(key), _part(payload)))

    def encode_parts(self, value: KeyAndValue[K, V]) -> tuple[bytes | None, bytes | None]:
        """Returns the message's key and its payload; INLINE has no key. Raises SchemaError."""
        return self._parts(value) if self.is_separated else (None, self.encode(value))

    def decode(self, payload: Payload, version: bytes = b"") -> KeyAndValue[K, V]:
        """Returns both parts of a payload. Raises SchemaError, also when the schema is SEPARATED."""
        if self.is_separated:
            raise SchemaError(
                "a SEPARATED key is not in the payload; use decode_parts with the message's key"
            )
        key, value = split_payload(payload)
        return self._decoded(key, value, version)

    def decode_parts(
        self, key: bytes | None, payload: Payload | None, version: bytes = b""
    ) -> KeyAndValue[K, V]:
        """Returns the value of a message with a key; INLINE does not look at the key. Raises SchemaError."""
        if self.is_separated:
            return self._decoded(key, payload, version)
        return KeyAndValue(None, None) if payload is None else self.decode(payload, version)

    def needs(self, version: bytes) -> bool:
        """Whether one of the two schemas needs the definition of a version."""
        return not self._unreadable.has(version) and any(each.needs(version) for each in self._versioned)

    def add_version(self, version: bytes, info: SchemaInfo) -> None:
        """Gives both schemas their parts of a definition; one that is not KEY_VALUE makes `decode` raise for
        its payloads. Raises SchemaError for a LATEST that one of them cannot take.
        """
        try:
            parts = parts_of(info)
        except SchemaError as error:
            if not is_version(version):
                raise
            self._unreadable.add(version, f"schema version {shown_version(version)} cannot be read: {error}")
            return
        for schema, part in zip((self._key, self._value), parts, strict=True):
            if isinstance(schema, VersionedSchema):
                schema.add_version(version, part)
        self._info = _joined_info(self._key, self._value, self._encoding)

    def for_topic(self) -> KeyValue[K, V]:
        """Returns the same schema without versions."""
        return KeyValue(_for_topic(self._key), _for_topic(self._value), self._encoding)

    def _parts(self, value: KeyAndValue[K, V]) -> tuple[bytes | None, bytes | None]:
        if not isinstance(value, KeyAndValue):
            raise SchemaError(f"{shown(value)} is not a KeyAndValue; send KeyAndValue(key, value)")
        key = None if value.key is None else self._key.encode(value.key)
        return key, None if value.value is None else self._value.encode(value.value)

    def _decoded(self, key: Payload | None, value: Payload | None, version: bytes) -> KeyAndValue[K, V]:
        if self._unreadable.has(version):
            raise SchemaError(self._unreadable.get(version))
        return KeyAndValue(
            None if key is None else self._key.decode(key, version),
            None if value is None else self._value.decode(value, version),
        )


def split_payload(payload: Payload) -> tuple[Payload | None, Payload | None]:
    """Returns key and value of an INLINE payload; None is null. Raises SchemaError."""
    key, rest = _first(payload, "key")
    value, rest = _first(rest, "value")
    if rest:
        raise SchemaError(
            f"an INLINE payload has {len(rest)} bytes after its value; consume the topic with the schema it "
            "was written with"
        )
    return key, value


def parts_of(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo]:
    """Returns the definitions of key and value. Raises SchemaError."""
    if info.type != SchemaType.KEY_VALUE:
        raise SchemaError(f"the topic's schema is {info.type_name}, not KEY_VALUE; use a schema of its type")
    try:
        key, value = key_and_value(info.definition())
    except InvalidSchema as error:
        raise SchemaError(f"the topic's KEY_VALUE definition cannot be read: {error}") from None
    return _named(key, info, "key"), _named(value, info, "value")


def encoding_of(info: SchemaInfo) -> Encoding:
    """Returns the encoding that a definition names, INLINE where it names none. Raises SchemaError."""
    found = info.properties.get(ENCODING) or INLINE
    if found == INLINE:
        return "INLINE"
    if found == SEPARATED:
        return "SEPARATED"
    raise SchemaError(f"the topic's KEY_VALUE definition has the encoding {shown(found)}; correct {ENCODING}")


def _named(part: SchemaDefinition, info: SchemaInfo, side: str) -> SchemaInfo:
    name = info.properties.get(f"{side}.schema.name", "")
    return SchemaInfo(name, part.type, part.data, part.properties)


def _joined_info(key: Schema[Any], value: Schema[Any], encoding: Encoding) -> SchemaInfo | None:
    """Returns None while one of the schemas waits for the topic's definition."""
    if any(each.info is None and isinstance(each, VersionedSchema) for each in (key, value)):
        return None
    properties = {}
    for side, schema in (("key", key), ("value", value)):
        part = schema.info or NO_SCHEMA
        properties[f"{side}.schema.name"] = part.name
        properties[f"{side}.schema.type"] = "BYTES" if part.type == SchemaType.NONE else part.type_name
        properties[f"{side}.schema.properties"] = json.dumps(dict(part.properties), separators=(",", ":"))
    properties[ENCODING] = encoding
    data = join((key.info or NO_SCHEMA).data, (value.info or NO_SCHEMA).data)
    return SchemaInfo("KeyValue", SchemaType.KEY_VALUE, data, properties)


def _for_topic(schema: Schema[T]) -> Schema[T]:
    return cast(Schema[T], schema.for_topic()) if isinstance(schema, VersionedSchema) else schema


def _part(payload: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if payload is None else _LENGTH.pack(len(payload)) + payload


def _first(payload: Payload, side: str) -> tuple[Payload | None, Payload]:
    if len(payload) < _LENGTH.size:
        raise SchemaError(
            f"an INLINE payload ends before the length of its {side}; is the topic's key separate?"
        )
    (length,) = _LENGTH.unpack_from(payload)
    if length == -1:
        return None, payload[_LENGTH.size :]
    end = _LENGTH.size + length
    if length < 0 or end > len(payload):
        raise SchemaError(
            f"an INLINE payload says {length} bytes of {side}, and {len(payload) - _LENGTH.size} bytes "
            "follow; consume the topic with the schema it was written with"
        )
    return payload[_LENGTH.size : end], payload[end:]
