"""Schemas of topics in metadata: each version of a topic's schema under a number that its messages refer to.

A schema given by a producer, a consumer, GetOrCreateSchema or the admin API is compared with the topic's
versions: an equal one keeps its number, another one becomes the next version if the topic's rules allow it
(`magnetar.common.schemas` compares). Partitions share the schemas of their partitioned topic.

A deletion is also a version, without a schema. Later versions continue the numbering and no number is reused,
so older messages remain readable with their schema version, and an equal schema that is added later gets a
new version.

One transaction writes a version: it checks that the latest version known is the latest still, so that no two
writers append on the ground of the same history, and a crash leaves all of a version or nothing.

A version on the wire is a signed 64-bit number, big-endian, counted from 0.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast
from weakref import WeakValueDictionary

from magnetar.broker.schemas import figures
from magnetar.broker.schemas.history import (
    DELETED,
    SchemaHistory,
    definition_of,
)
from magnetar.broker.schemas.history_cache import HistoryCache
from magnetar.broker.schemas.rules import SchemaRules
from magnetar.common.errors import (
    IncompatibleSchema,
    InvalidSchema,
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
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock, SystemClock
from magnetar.common.schemas.definition import SchemaDefinition
from magnetar.common.schemas.rules import (
    Strategy,
    Versions,
    check_put,
    check_subscribe,
    find,
    identity,
    validate,
)
from magnetar.common.wire.pulsar_pb2 import Schema

T = TypeVar("T")

NO_VERSION: Final = b""
"""Version of messages without a schema (plain bytes)."""

_VERSION: Final = struct.Struct(">q")

_NONE: Final = Schema.Type.Value("None")

_PUT_ATTEMPTS_MAX: Final = 16

_DELETED_WITH_TOPIC_MAX: Final = TXN_OPS_MAX - 16
"""Maximum versions deleted in the transaction that deletes their topic, which has other operations, too."""

_ERASED_AT_ONCE_MAX: Final = TXN_OPS_MAX - 2
"""Maximum versions that one transaction erases, besides its guards."""

INLINE_BYTES_MAX: Final = 16 << 10
"""Bytes of definitions that are compared on the event loop; larger comparisons run in a thread."""


class SchemaStore:
    """The schemas of every topic of a cluster."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock | None = None,
        pool: BlockingPool | None = None,
    ) -> None:
        """`pool` runs comparisons of large definitions; without it they run on the event loop."""
        self._metadata = metadata
        self._keys = keys
        self._clock = clock or SystemClock()
        self._pool = pool
        self._histories = HistoryCache(metadata, keys)
        self._turns: WeakValueDictionary[TopicName, asyncio.Lock] = WeakValueDictionary()

    async def follow(self) -> None:
        """Keeps histories of topics cached, until the caller cancels it or the store is closed."""
        await self._histories.follow()

    def forget(self, topic: TopicName) -> None:
        """Drops what is cached of a topic, so that its versions are listed again."""
        self._histories.forget(topic)

    # Clients

    async def put(self, topic: TopicName, schema: Schema, rules: SchemaRules) -> bytes:
        """Returns the version of `schema` at `topic`, storing it when it is new; NO_VERSION for plain bytes.

        Concurrent calls with the same schema return one version. Raises InvalidSchema; IncompatibleSchema
        when the rules do not allow it; NotAllowed when it is too large; NamespaceNotFound; MetadataError when
        the store does not answer or conflicts exhaust the attempts.
        """
        if schema.type == _NONE:
            return NO_VERSION
        began = self._clock.monotonic()
        try:
            version = await self._put(topic, schema, rules)
        except Exception:
            figures.PUT.failed(topic.namespace)
            raise
        now = self._clock.monotonic()
        figures.PUT.succeeded(topic.namespace, now, now - began)
        return _VERSION.pack(version)

    async def _put(self, topic: TopicName, schema: Schema, rules: SchemaRules) -> int:
        asked_at = self._histories.serial
        definition = definition_of(schema)
        found = await self._number_of(await self._histories.get(topic), definition)
        if found is not None:
            return found
        after = 0
        async with self._turn(topic):
            for _ in range(_PUT_ATTEMPTS_MAX):
                history = await self._histories.get(topic, after)
                found = await self._number_of(history, definition)
                if found is not None:
                    return found
                try:
                    await self._check_new(topic, history, definition, rules)
                except IncompatibleSchema:
                    if history.serial > asked_at:
                        figures.INCOMPATIBLE.labels(str(topic.namespace)).inc()
                        raise
                    after = asked_at  # the cached history may be outdated: refuse by a newer one only
                    continue
                try:
                    version = await self._append(topic, history, self._record(schema))
                    figures.COMPATIBLE.labels(str(topic.namespace)).inc()
                    return version
                except (VersionMismatch, UnknownOutcome):
                    # Another writer took the number, our own write may have succeeded, or the namespace was
                    # changed: list the versions again to find out.
                    after = self._histories.serial
        raise _too_many(topic)

    async def check_reader(self, topic: TopicName, schema: Schema, strategy: Strategy) -> None:
        """Checks that a consumer with this schema can read the topic; stores nothing.

        Raises InvalidSchema, IncompatibleSchema, MetadataError.
        """
        asked_at, after = self._histories.serial, 0
        definition = definition_of(schema)
        while True:
            history = await self._histories.get(topic, after)
            known_as = await self._compare(None, definition, lambda new, _: identity(new))
            if not history.is_reader(known_as, strategy):
                try:
                    await self._compare(
                        history, definition, lambda new, current: check_subscribe(new, current, strategy)
                    )
                except IncompatibleSchema:
                    if history.serial > asked_at:
                        figures.INCOMPATIBLE.labels(str(topic.namespace)).inc()
                        raise
                    after = asked_at
                    continue
                history.remember_reader(known_as, strategy)
            figures.COMPATIBLE.labels(str(topic.namespace)).inc()
            return

    async def has_schema(self, topic: TopicName) -> bool:
        """Whether the topic has a schema that is not deleted. Raises MetadataError."""
        asked_at = self._histories.serial
        if (await self._histories.get(topic)).current:
            return True
        return bool((await self._histories.get(topic, asked_at)).current)

    async def get(self, topic: TopicName, version: bytes = NO_VERSION) -> tuple[Schema, bytes] | None:
        """Returns the schema of that version, or the latest when `version` is empty, with its version; None
        without one.

        Deleted versions are returned by their number, because messages refer to them. Of a version with more
        than 8 bytes, as old clients send it, the first 8 count. Raises NotAllowed when `version` is
        malformed; MetadataError.
        """
        began = self._clock.monotonic()
        number = version_number(version) if version else None
        try:
            record = await self._get(topic, number)
        except MetadataError:
            figures.GET.failed(topic.namespace)
            raise
        if record is None:
            return None
        now = self._clock.monotonic()
        figures.GET.succeeded(topic.namespace, now, now - began)
        kind = cast("Schema.Type.ValueType", record.type)
        schema = Schema(name=record.name, schema_data=record.data, type=kind)
        for key, value in sorted(record.properties.items()):
            schema.properties.add(key=key, value=value)
        return schema, _VERSION.pack(record.version)

    async def _get(self, topic: TopicName, number: int | None) -> SchemaRecord | None:
        if number is None:
            return (await self._fresh(topic)).latest
        if number < 0:
            return None
        known = self._histories.known(topic)
        record = None if known is None else known.record(number)
        if record is not None:
            return record  # versions never change
        found = await self._metadata.get(self._keys.schema(topic, number))
        record = None if found is None else decode(SchemaRecord, found.value)
        return None if record is None or record.type == DELETED else record

    # Administration

    async def history(self, topic: TopicName) -> list[SchemaRecord]:
        """Returns every version in order, including deletions. Raises MetadataError."""
        return (await self._fresh(topic)).records

    async def current(self, topic: TopicName) -> list[SchemaRecord]:
        """Returns the versions that are not deleted, in order. Raises MetadataError."""
        return (await self._fresh(topic)).current_records

    async def find(self, topic: TopicName, schema: Schema) -> int | None:
        """Returns the version of an equal schema; None without one. Raises InvalidSchema, MetadataError."""
        definition = definition_of(schema)
        await self._compare(None, definition, lambda new, _: validate(new))
        return await self._number_of(await self._fresh(topic), definition)

    async def is_compatible(self, topic: TopicName, schema: Schema, strategy: Strategy) -> bool:
        """Whether `put` would take this schema. Raises InvalidSchema, MetadataError."""
        definition = definition_of(schema)
        history = await self._fresh(topic)
        try:
            await self._check_new(topic, history, definition, SchemaRules(strategy))
        except InvalidSchema:
            raise
        except IncompatibleSchema:
            figures.INCOMPATIBLE.labels(str(topic.namespace)).inc()
            return False
        figures.COMPATIBLE.labels(str(topic.namespace)).inc()
        return True

    async def retire(self, topic: TopicName) -> int:
        """Marks the topic's schemas as deleted; messages published with them keep their schema.

        Returns the version that records the deletion, which is an existing one when no schema was added
        since; 0 when there was never a schema. Raises MetadataError.
        """
        with self._deleting(topic):
            async with self._turn(topic):
                for _ in range(_PUT_ATTEMPTS_MAX):
                    history = await self._fresh(topic)
                    if not history.records:
                        return 0
                    if history.is_deleted:
                        return history.records[-1].version
                    try:
                        return await self._append(topic, history, SchemaRecord(type=DELETED))
                    except (VersionMismatch, UnknownOutcome):
                        continue
            raise _too_many(topic)

    async def erase(self, topic: TopicName) -> None:
        """Deletes every version: published messages lose their schemas, and numbering starts again at 0.

        Raises MetadataError.
        """
        with self._deleting(topic):
            async with self._turn(topic):
                for _ in range(_PUT_ATTEMPTS_MAX):
                    history = await self._fresh(topic)
                    try:
                        await self._erase(topic, history)
                        return
                    except (VersionMismatch, UnknownOutcome):
                        continue  # a version was added meanwhile, or it is not known what was deleted
            raise _too_many(topic)

    async def _erase(self, topic: TopicName, history: SchemaHistory) -> None:
        """Deletes the versions of a history, oldest first, while it is complete."""
        following = Check(self._keys.schema(topic, history.next_version), ABSENT)
        keys = [self._keys.schema(topic, each.version) for each in history.records]
        for first in range(0, len(keys), _ERASED_AT_ONCE_MAX):
            chunk = keys[first : first + _ERASED_AT_ONCE_MAX]
            ops: list[Op] = [Delete(key) for key in chunk if key != history.latest_key]
            latest = Delete if history.latest_key in chunk else Check
            ops.append(latest(history.latest_key, history.latest_key_version))
            await self._metadata.commit([*ops, following])
        self.forget(topic)

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

    @contextmanager
    def _deleting(self, topic: TopicName) -> Iterator[None]:
        """Measures a deletion."""
        began = self._clock.monotonic()
        try:
            yield
        except Exception:
            figures.DELETE.failed(topic.namespace)
            raise
        now = self._clock.monotonic()
        figures.DELETE.succeeded(topic.namespace, now, now - began)

    # Comparisons and writes

    async def _fresh(self, topic: TopicName) -> SchemaHistory:
        return await self._histories.get(topic, self._histories.serial)

    def _turn(self, topic: TopicName) -> asyncio.Lock:
        """Returns the lock of this broker's writers of a topic: they would only conflict with each other."""
        lock = self._turns.get(topic.base)
        if lock is None:
            lock = self._turns[topic.base] = asyncio.Lock()
        return lock

    async def _number_of(self, history: SchemaHistory, definition: SchemaDefinition) -> int | None:
        """Returns the version of an equal schema that is not deleted; None without one."""
        known_as = await self._compare(None, definition, lambda new, _: identity(new))
        number = history.number_of(known_as)
        if number is None:
            number = await self._compare(history, definition, find)
            if number is not None:
                history.remember_number(known_as, number)
        return number

    async def _check_new(
        self, topic: TopicName, history: SchemaHistory, definition: SchemaDefinition, rules: SchemaRules
    ) -> None:
        """Raises InvalidSchema, and IncompatibleSchema when the rules do not allow a new version."""
        if not rules.may_update:
            raise IncompatibleSchema(
                f"Schema not found and schema auto updating is disabled. Topic {topic.base} takes new "
                "schemas from the admin API only: upload it there first, or set isAllowAutoUpdateSchema of "
                "the namespace"
            )
        await self._compare(history, definition, lambda new, current: check_put(new, current, rules.strategy))

    async def _compare(
        self,
        history: SchemaHistory | None,
        definition: SchemaDefinition,
        call: Callable[[SchemaDefinition, Versions], T],
    ) -> T:
        """Compares a definition with the current versions, if any, in a thread when they are large."""
        current = () if history is None else history.current
        byte_count = len(definition.data) + (0 if history is None else history.byte_size)
        if self._pool is None or byte_count <= INLINE_BYTES_MAX:
            return call(definition, current)
        return await self._pool.run(lambda: call(definition, current))

    async def _append(self, topic: TopicName, history: SchemaHistory, record: SchemaRecord) -> int:
        """Writes the next version, if the history is complete. Returns its number.

        Raises VersionMismatch when it is not, UnknownOutcome, NotAllowed, NamespaceNotFound.
        """
        record.version = history.next_version
        value = encode(record)
        if len(value) > VALUE_BYTES_MAX:
            raise NotAllowed(
                f"the schema of {topic} has {len(value):,} bytes, at most {VALUE_BYTES_MAX:,} fit"
            )
        namespace = await self._metadata.get(self._keys.namespace(topic.namespace))
        if namespace is None:
            raise NamespaceNotFound(f"namespace {topic.namespace} does not exist; create it first")
        ops: list[Op] = [
            Put(self._keys.schema(topic, record.version), value, ABSENT),
            Check(namespace.key, namespace.version),
        ]
        if history.latest_key:
            # Versions may have been erased and numbered anew: the latest one must be the one compared with.
            ops.append(Check(history.latest_key, history.latest_key_version))
        await self._metadata.commit(ops)
        self.forget(topic)
        return record.version

    def _record(self, schema: Schema) -> SchemaRecord:
        return SchemaRecord(
            name=schema.name,
            type=schema.type,
            data=schema.schema_data,
            properties={each.key: each.value for each in schema.properties},
            created_ms=self._clock.wall_ms(),
        )


def version_number(version: bytes) -> int:
    """Converts a version from its wire format to a number. Raises NotAllowed when it is too short."""
    if len(version) < _VERSION.size:
        raise NotAllowed(f"a schema version has {_VERSION.size} bytes, not {len(version)}")
    return int(_VERSION.unpack_from(version)[0])


def _too_many(topic: TopicName) -> MetadataError:
    return MetadataError(
        f"a schema of {topic} found no free version in {_PUT_ATTEMPTS_MAX} attempts: many schemas are being "
        "added at once; retry"
    )
