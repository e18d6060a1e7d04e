"""Schemas that follow the topic's: for producers of encoded payloads, and consumers of any schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.client.schemas.avro import generic_reader
from magnetar.client.schemas.json import parsed_json
from magnetar.client.schemas.key_value import KeyValue, encoding_of, parts_of
from magnetar.client.schemas.primitive import BY_TYPE, Bytes
from magnetar.client.schemas.protobuf_native import message_reader
from magnetar.client.schemas.schema import (
    LATEST,
    PartedSchema,
    Payload,
    Schema,
    SchemaError,
    SchemaInfo,
    is_version,
    shown_version,
)
from magnetar.client.schemas.versions import WriterVersions
from magnetar.common.schemas.definition import SchemaType, shown

_AUTO_CONSUME: Final = SchemaInfo("AutoConsume", SchemaType.AUTO_CONSUME, b"")


class AutoConsume:
    """The schema of consumers of any schema: each payload is decoded by the definition of its version.

    Records of JSON and AVRO become dicts, keys and values a KeyAndValue, PROTOBUF_NATIVE messages of a class
    made of the descriptors, and payloads without a version, or of type PROTOBUF, stay bytes.
    """

    def __init__(self) -> None:
        self._versions = WriterVersions[Schema[Any]]()

    @property
    def info(self) -> SchemaInfo:
        """The type AUTO_CONSUME, by which brokers tell such consumers from those of plain bytes."""
        return _AUTO_CONSUME

    def encode(self, value: object) -> bytes:
        """Raises SchemaError: producers have no use for this schema."""
        raise SchemaError(
            "AutoConsume is a schema of consumers; give the producer the topic's schema or AutoProduce"
        )

    def decode(self, payload: Payload, version: bytes = b"") -> Any:
        """Returns the value of a payload. Raises SchemaError."""
        return self._versions.get(version).decode(payload, version) if is_version(version) else bytes(payload)

    @property
    def is_separated(self) -> bool:
        """False: it depends on the version."""
        return False

    def encode_parts(self, value: object) -> tuple[bytes | None, bytes | None]:
        """Raises SchemaError as `encode` does."""
        return None, self.encode(value)

    def decode_parts(self, key: bytes | None, payload: Payload | None, version: bytes = b"") -> Any:
        """Returns the value of a message, with its key where the schema is SEPARATED. Raises SchemaError."""
        if is_version(version):
            schema = self._versions.get(version)
            if isinstance(schema, PartedSchema):
                return schema.decode_parts(key, payload, version)
        return None if payload is None else self.decode(payload, version)

    def needs(self, version: bytes) -> bool:
        """Whether the definition has to be fetched."""
        return is_version(version) and not self._versions.has(version)

    def add_version(self, version: bytes, info: SchemaInfo) -> None:
        """Keeps a definition. One that cannot be read makes `decode` raise for its payloads."""
        try:
            schema = generic_schema(info)
        except SchemaError as error:
            schema = _Unreadable(
                f"schema version {shown_version(version)} of the topic cannot be read: {error}"
            )
        self._versions.add(version, schema)

    def for_topic(self) -> AutoConsume:
        """Returns the same schema without versions."""
        return AutoConsume()


class AutoProduce:
    """The schema of a producer of payloads that are encoded already, by the topic's newest definition.

    The producer asks for that definition when it opens (`needs(LATEST)`), and registers it as its own.
    """

    def __init__(self) -> None:
        self._info: SchemaInfo | None = None
        self._decode: Callable[[Payload], object] | None = None

    @property
    def info(self) -> SchemaInfo | None:
        """The topic's newest definition; None before it is added, and for a topic without a schema."""
        return self._info

    def encode(self, value: bytes) -> bytes:
        """Returns the payload, once it has been decoded. Raises SchemaError for one that does not fit."""
        if self._decode is None:
            raise SchemaError(
                "the topic's schema is not known yet; add it with add_version(LATEST, ...) first"
            )
        if not isinstance(value, bytes | bytearray | memoryview):
            raise SchemaError(
                f"{shown(value)} is not bytes; AutoProduce takes payloads that are encoded already"
            )
        try:
            self._decode(value)
        except SchemaError as error:
            raise SchemaError(f"the payload does not fit the topic's schema: {error}") from None
        return bytes(value)

    def decode(self, payload: Payload, version: bytes = b"") -> bytes:
        """Returns the payload."""
        return bytes(payload)

    def needs(self, version: bytes) -> bool:
        """Whether the topic's newest definition has to be fetched."""
        return version == LATEST and self._decode is None

    def add_version(self, version: bytes, info: SchemaInfo) -> None:
        """Takes the topic's newest definition, NO_SCHEMA where it has none. Raises SchemaError."""
        if version != LATEST:
            return
        schema: Schema[Any] = generic_schema(info)
        if info.type == SchemaType.KEY_VALUE and encoding_of(info) == "SEPARATED":
            schema = generic_schema(parts_of(info)[1])
        self._info = None if info.type == SchemaType.NONE else info
        self._decode = lambda payload: schema.decode(payload, b"")

    def for_topic(self) -> AutoProduce:
        """Returns the same schema without a definition."""
        return AutoProduce()


class _Generic:
    """A schema of payloads of one definition."""

    def __init__(self, info: SchemaInfo, decode: Callable[[Payload], Any]) -> None:
        self.info: SchemaInfo | None = info
        self._decode = decode

    def encode(self, value: Any) -> bytes:
        raise SchemaError(f"a schema made of the topic's {shown(self.info)} only decodes")

    def decode(self, payload: Payload, version: bytes) -> Any:
        return self._decode(payload)


class _Unreadable:
    """A schema of payloads that cannot be decoded."""

    def __init__(self, why: str) -> None:
        self.info: SchemaInfo | None = None
        self._why = why

    def encode(self, value: Any) -> bytes:
        raise SchemaError(self._why)

    def decode(self, payload: Payload, version: bytes) -> Any:
        raise SchemaError(self._why)


def generic_schema(info: SchemaInfo) -> Schema[Any]:
    """Returns the schema that decodes payloads of a definition without a class. Raises SchemaError."""
    if info.type in BY_TYPE:
        return BY_TYPE[info.type]()
    match info.type:
        case SchemaType.JSON:
            return _Generic(info, parsed_json)
        case SchemaType.AVRO:
            return _Generic(info, generic_reader(info))
        case SchemaType.KEY_VALUE:
            key, value = parts_of(info)
            return KeyValue(generic_schema(key), generic_schema(value), encoding_of(info))
        case SchemaType.PROTOBUF:
            return Bytes()
        case SchemaType.PROTOBUF_NATIVE:
            return _Generic(info, message_reader(info))
    raise SchemaError(f"schemas of type {info.type_name} are not known; update this client")
