"""The interface between schemas and the producers and consumers that use them.

A schema does no I/O. A producer registers `info` when it opens, and encodes. A consumer registers `info` when
it subscribes, and before it decodes a message asks a `VersionedSchema` whether it `needs` the definition of
the message's version; if so, it fetches the definition (CommandGetSchema) and adds it, once for each version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from magnetar.client.errors import SchemaError as SchemaError
from magnetar.common.schemas.definition import SchemaDefinition, SchemaType, type_name
from magnetar.common.wire.pulsar_pb2 import KeyValue
from magnetar.common.wire.pulsar_pb2 import Schema as WireSchema

T = TypeVar("T")

Payload: TypeAlias = bytes | memoryview
"""A message's payload as a consumer has it."""

VERSION_BYTES: Final = 8
"""Bytes of a version: a signed number, big-endian. Old clients send 64 bytes, of which these come first."""

LATEST: Final = b"latest"
"""In place of a version: the topic's newest definition, which a producer asks for when it opens."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as a topic keeps it."""

    name: str
    """A label; brokers do not compare it."""
    type: int
    """The wire's number, a `SchemaType`."""
    data: bytes
    """The definition in the form of its type; empty for primitives."""
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> WireSchema:
        """Returns the schema as commands carry it."""
        pairs = [KeyValue(key=key, value=value) for key, value in self.properties.items()]
        number = cast(WireSchema.Type.ValueType, self.type)
        return WireSchema(name=self.name, type=number, schema_data=self.data, properties=pairs)

    @classmethod
    def from_wire(cls, schema: WireSchema) -> SchemaInfo:
        """Returns the schema that a command carries."""
        properties = {each.key: each.value for each in schema.properties}
        return cls(schema.name, int(schema.type), schema.schema_data, properties)

    def definition(self) -> SchemaDefinition:
        """Returns the schema without its label, as the registry's rules take it."""
        return SchemaDefinition(self.type, self.data, self.properties)

    @property
    def type_name(self) -> str:
        """The admin API's name of the type."""
        return type_name(self.type)


NO_SCHEMA: Final = SchemaInfo("Bytes", SchemaType.NONE, b"")
"""The answer of a topic without a schema: plain bytes."""


class Schema(Protocol[T]):
    """A schema of values of one type. One object may serve many producers."""

    @property
    def info(self) -> SchemaInfo | None:
        """The definition that producers and consumers register; None: none, or not yet known."""

    def encode(self, value: T) -> bytes:
        """Returns the payload of a value. Raises SchemaError."""

    def decode(self, payload: Payload, version: bytes) -> T:
        """Returns the value of a payload written under a version, as the message has it; empty: no version.

        Raises SchemaError.
        """


@runtime_checkable
class VersionedSchema(Protocol):
    """The part of a schema that depends on the topic's definitions."""

    def needs(self, version: bytes) -> bool:
        """Whether the definition of a version has to be added first."""

    def add_version(self, version: bytes, info: SchemaInfo) -> None:
        """Keeps the definition of a version; one that this schema cannot read makes `decode` raise for the
        payloads of that version. Raises SchemaError for a LATEST that the schema cannot take.
        """

    def for_topic(self) -> VersionedSchema:
        """Returns a schema of the same values without versions: numbers of versions count within one topic,
        so a consumer of several topics has one schema for each.
        """


@runtime_checkable
class PartedSchema(Protocol):
    """The part of a schema whose values may be spread over the message's key and its payload."""

    @property
    def is_separated(self) -> bool:
        """Whether messages are written with the key apart."""

    def encode_parts(self, value: object) -> tuple[bytes | None, bytes | None]:
        """Returns the message's key and its payload; a key of None: no key, a payload of None: a null value.

        The producer sends the key in base64, or as a null key (`null_partition_key`). Raises SchemaError.
        """

    def decode_parts(self, key: bytes | None, payload: Payload | None, version: bytes) -> object:
        """Returns the value of a message; `key` is the decoded key. Raises SchemaError."""


def is_version(version: bytes) -> bool:
    """Whether a message or request names a version: not LATEST, and not the empty one of plain bytes."""
    return len(version) >= VERSION_BYTES


def version_key(version: bytes) -> bytes:
    """Returns the part of a version that counts."""
    return version[:VERSION_BYTES]


def shown_version(version: bytes) -> str:
    """Returns a version as a number, for errors."""
    if version == LATEST:
        return "latest"
    return str(int.from_bytes(version_key(version), "big", signed=True)) if is_version(version) else "none"
