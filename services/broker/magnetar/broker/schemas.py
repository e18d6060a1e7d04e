"""Schemas of topics: stored as clients send them, each with a version that its messages refer to.

A schema given by a producer, a consumer or GetOrCreateSchema is compared with the topic's versions by type,
definition and properties; the name is only a label. A new schema becomes the next version. There are no
compatibility rules yet. Partitions share the schemas of their partitioned topic.

A deletion is also a version, without a schema. Later versions continue the numbering and no number is reused,
so older messages remain readable with their schema version, and an equal schema that is added later gets a
new version.

A version on the wire is a signed 64-bit number, big-endian, counted from 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, cast

from magnetar.common.errors import (
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import (
    ABSENT,
    TXN_OPS_MAX,
    VALUE_BYTES_MAX,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
)
from magnetar.common.metadata.values import SchemaRecord, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock, SystemClock
from magnetar.common.wire.pulsar_pb2 import Schema

NO_VERSION: Final = b""
"""Version of messages without a schema (plain bytes)."""

_VERSION: Final = struct.Struct(">q")

_STORED_TYPES: Final = range(1, 21)
"""Stored schema types, String to ProtobufNative: None means plain bytes, and auto types describe no data."""

_DELETED: Final = Schema.Type.Value("None")
"""Type of a version that records a deletion of the earlier versions."""

_PUT_ATTEMPTS_MAX: Final = 16

_DELETED_WITH_TOPIC_MAX: Final = TXN_OPS_MAX - 16
"""Maximum versions deleted in the transaction that deletes their topic, which has other operations, too."""


class SchemaStore:
    """The schemas of every topic of a cluster."""

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock | None = None) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock or SystemClock()

    async def put(self, topic: TopicName, schema: Schema) -> bytes:
        """Returns the version of `schema` at `topic`, storing it when it is new; NO_VERSION without a
        definition to store.

        Concurrent calls with the same schema return one version. Raises NotAllowed when it is too large;
        NamespaceNotFound; MetadataError when the store does not answer or conflicts exhaust the attempts.
        """
        if schema.type not in _STORED_TYPES:
            return NO_VERSION
        return _VERSION.pack(await self._next(topic, lambda version: self._record(version, schema)))

    async def retire(self, topic: TopicName) -> int:
        """Marks the topic's schemas as deleted; messages published with them keep their schema.

        Returns the version that records the deletion, which is an existing one when no schema was added
        since; 0 when there was never a schema. Raises MetadataError.
        """
        if not await self.history(topic):
            return 0
        return await self._next(topic, lambda version: SchemaRecord(version=version, type=_DELETED))

    async def erase(self, topic: TopicName) -> None:
        """Deletes every version: published messages lose their schemas, and numbering starts again at 0."""
        items = (await self._metadata.children(self._keys.schemas_prefix(topic))).items
        for first in range(0, len(items), TXN_OPS_MAX):
            await self._metadata.commit([Delete(item.key) for item in items[first : first + TXN_OPS_MAX]])

    async def history(self, topic: TopicName) -> list[SchemaRecord]:
        """Returns every version in order, including deletions."""
        listing = await self._metadata.children(self._keys.schemas_prefix(topic))
        return [decode(SchemaRecord, item.value) for item in listing.items]

    async def current(self, topic: TopicName) -> list[SchemaRecord]:
        """Returns the versions that are not deleted, in order."""
        return _since_deletion(await self.history(topic))

    async def _next(self, topic: TopicName, make: Callable[[int], SchemaRecord]) -> int:
        """Returns the version of the record that `make` builds for a number: an existing equal one, or the
        next.
        """
        for _ in range(_PUT_ATTEMPTS_MAX):
            history = await self.history(topic)
            version = history[-1].version + 1 if history else 0
            made = make(version)
            for stored in _since_deletion(history) if made.type != _DELETED else history[-1:]:
                if same_schema(stored, made):
                    return stored.version
            record = encode(made)
            if len(record) > VALUE_BYTES_MAX:
                raise NotAllowed(
                    f"the schema of {topic} has {len(record):,} bytes, at most {VALUE_BYTES_MAX:,} fit"
                )
            namespace = await self._metadata.get(self._keys.namespace(topic.namespace))
            if namespace is None:
                raise NamespaceNotFound(f"namespace {topic.namespace} does not exist; create it first")
            ops: list[Op] = [
                Put(self._keys.schema(topic, version), record, ABSENT),
                Check(namespace.key, namespace.version),
            ]
            try:
                await self._metadata.commit(ops)
            except (VersionMismatch, UnknownOutcome):
                # Another writer took the number, our own write may have succeeded, or the namespace was
                # changed: list the versions again to find out.
                continue
            return version
        raise MetadataError(
            f"a schema of {topic} found no free version in {_PUT_ATTEMPTS_MAX} attempts: many schemas are "
            "being added at once; retry"
        )

    async def get(self, topic: TopicName, version: bytes = NO_VERSION) -> tuple[Schema, bytes] | None:
        """Returns the schema of that version, or the latest when `version` is empty, with its version; None
        without one.

        Raises NotAllowed when `version` is malformed.
        """
        if version:
            if len(version) != _VERSION.size:
                raise NotAllowed(f"a schema version has {_VERSION.size} bytes, not {len(version)}")
            (number,) = _VERSION.unpack(version)
            if number < 0:
                return None
            found = await self._metadata.get(self._keys.schema(topic, number))
        else:
            listing = await self._metadata.children(self._keys.schemas_prefix(topic))
            found = listing.items[-1] if listing.items else None
        if found is None:
            return None
        record = decode(SchemaRecord, found.value)
        if record.type == _DELETED:
            return None
        kind = cast("Schema.Type.ValueType", record.type)
        schema = Schema(name=record.name, schema_data=record.data, type=kind)
        for key, value in sorted(record.properties.items()):
            schema.properties.add(key=key, value=value)
        return schema, _VERSION.pack(record.version)

    async def deletions(self, topic: TopicName) -> list[Op]:
        """Returns the operations that delete every version, for the transaction that deletes the topic.

        A later topic of the same name then starts without versions. The oldest versions beyond the size of a
        transaction are deleted at once.
        """
        items = (await self._metadata.children(self._keys.schemas_prefix(topic))).items
        surplus = items[:-_DELETED_WITH_TOPIC_MAX]
        for first in range(0, len(surplus), TXN_OPS_MAX):
            await self._metadata.commit([Delete(item.key) for item in surplus[first : first + TXN_OPS_MAX]])
        return [Delete(item.key) for item in items[-_DELETED_WITH_TOPIC_MAX:]]

    def _record(self, version: int, schema: Schema) -> SchemaRecord:
        return SchemaRecord(
            version=version,
            name=schema.name,
            type=schema.type,
            data=schema.schema_data,
            properties=_properties(schema),
            created_ms=self._clock.wall_ms(),
        )


def version_number(version: bytes) -> int:
    """Converts a version from its wire format to a number."""
    return int(_VERSION.unpack(version)[0])


def same_schema(one: SchemaRecord, other: SchemaRecord) -> bool:
    """Whether two records have equal type, definition and properties."""
    return (
        one.type == other.type and one.data == other.data and dict(one.properties) == dict(other.properties)
    )


def _since_deletion(history: list[SchemaRecord]) -> list[SchemaRecord]:
    for index in range(len(history) - 1, -1, -1):
        if history[index].type == _DELETED:
            return history[index + 1 :]
    return history


def _properties(schema: Schema) -> dict[str, str]:
    return {each.key: each.value for each in schema.properties}
