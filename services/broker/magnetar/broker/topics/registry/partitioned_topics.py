"""Partitioned topics: the number of partitions in metadata, and one topic for each partition.

The number only grows. Partitions are ordinary topics, found by their names; a topic whose name ends in
`-partition-<digits>` without such metadata is not a partition (messaging contract, sections 5 and 6).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.topics.config import TopicSettings
from magnetar.broker.topics.registry.creation_guards import guards_of
from magnetar.broker.topics.registry.remote_topics import RemoteTopics
from magnetar.broker.topics.registry.topic_registry import NOT_PARTITIONED, TopicRegistry, check_deletable
from magnetar.common.errors import (
    BeingChanged,
    InvalidName,
    InvalidPartitions,
    NamespaceNotFound,
    TopicBusy,
    TopicExists,
    TopicNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Check, MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import PartitionedTopic, decode, encode
from magnetar.common.naming.topic_name import TopicName, is_system_topic
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.directory import (
    create_managed_ledgers,
    delete_managed_ledgers,
    deleted_at_once,
)
from magnetar.ledger.managed_ledger.topic_head import PropertiesChange

log = get_logger(__name__)

PARTITIONS_MAX: Final = 100_000
"""Maximum partitions of a topic when maxNumPartitionsPerPartitionedTopic sets no limit."""

CLOSED_AT_ONCE: Final = 16
"""Partitions closed at the same time during a deletion; each may wait for storage that does not answer."""


Subscribe = Callable[[TopicName, range], Awaitable[None]]
"""Copies the subscriptions of a topic's first partition to its new partitions."""


class PartitionedTopics:
    """Creates, grows and deletes the partitioned topics of a cluster."""

    def __init__(
        self,
        config: TopicSettings,
        ledgers: ManagedLedgerContext,
        metadata: MetadataStore,
        keys: Keys,
        policies: PolicyStore,
        registry: TopicRegistry,
    ) -> None:
        self._config = config.policies.topic_creation
        self._ledgers = ledgers
        self._metadata = metadata
        self._keys = keys
        self._policies = policies
        self._registry = registry
        self._changing: set[str] = set()
        self.elsewhere: RemoteTopics | None = None
        """Topics loaded by other brokers; None without other brokers."""

    async def get(self, name: TopicName) -> PartitionedTopic | None:
        """Metadata of a partitioned topic; None without one of that name."""
        found = await self._metadata.get(self._keys.partitioned_topic(name))
        return None if found is None else decode(PartitionedTopic, found.value)

    async def ask(self, name: TopicName, *, create: bool) -> int:
        """Returns the number of partitions that a client is to use: 0 when the topic is not partitioned.

        A missing topic is created only if `create` is set and its policies allow automatic creation as a
        partitioned topic. Raises TopicNotFound when it is missing and is not created for this client,
        NamespaceNotFound, InvalidPartitions.
        """
        registry = self._registry
        await registry.check_namespace(name.namespace)
        partitions = await registry.partitions(name)
        if partitions != NOT_PARTITIONED or await registry.exists(name):
            return partitions
        if not create:
            raise TopicNotFound(f"topic {name} does not exist")
        if name.partition_index >= 0 and name.partition_index < await registry.partitions(name.base):
            return NOT_PARTITIONED
        policies = await self._policies.of_namespace(name.namespace)
        if not policies.auto_topic_creation:
            raise TopicNotFound(f"topic {name} does not exist and allowAutoTopicCreation is off")
        if not policies.auto_partitions or name.partition_index >= 0 or is_system_topic(name):
            return NOT_PARTITIONED
        try:
            await self._put_new(name, policies.auto_partitions, {}, alone=False)
        except TopicExists:  # a concurrent creation won in metadata
            return await registry.partitions(name)
        return policies.auto_partitions

    async def create_partitioned(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        """Creates a partitioned topic and, if it is persistent, its partitions.

        Raises InvalidName for the name of a partition, InvalidPartitions, TopicExists when a topic of that
        name exists, NamespaceNotFound, NotAllowed, MetadataError (then `create_missing` creates the rest).
        """
        async with self._alone(name):
            await self._put_new(name, partitions, properties, alone=True)
            await self._make_partitions(name, range(partitions))

    async def create_missing(self, name: TopicName) -> None:
        """Creates the missing partitions of a partitioned topic. Raises TopicNotFound."""
        async with self._alone(name):
            topic = await self._existing(name)
            await self._make_partitions(name, range(decode(PartitionedTopic, topic.value).partitions))

    async def grow(self, name: TopicName, partitions: int, subscribe: Subscribe | None = None) -> None:
        """Adds partitions to a partitioned topic; clients find them with their next metadata request.

        The durable subscriptions of the first partition exist on the new ones, at the earliest position,
        before clients can see the new partitions: no message is missed. `subscribe` creates them when
        partitions may be on other brokers. Raises TopicNotFound; InvalidPartitions when the topic already has
        so many or may not have them; BeingChanged during a concurrent change; MetadataError.
        """
        async with self._alone(name):
            found = await self._existing(name)
            value = decode(PartitionedTopic, found.value)
            if partitions <= value.partitions:
                raise InvalidPartitions(
                    f"topic {name} has {value.partitions} partitions: the number can only grow, to more "
                    f"than that, not to {partitions}"
                )
            self._check_count(partitions)
            new = range(value.partitions, partitions)
            await self._make_partitions(name, new)
            if name.persistent:
                await (subscribe or self._subscribe_alike)(name, new)
            value.partitions = partitions
            await self._metadata.put(found.key, encode(value), found.version)
        log.info("partitioned topic grown", topic=name.full, partitions=partitions)

    async def change_properties(self, name: TopicName, change: PropertiesChange) -> None:
        """Replaces the properties of a partitioned topic by the result of `change`.

        Raises errors of `change`, TopicNotFound, BeingChanged during a concurrent change, MetadataError.
        """
        async with self._alone(name):
            found = await self._existing(name)
            value = decode(PartitionedTopic, found.value)
            properties = change(dict(value.properties))
            value.properties.clear()
            value.properties.update(properties)
            await self._metadata.put(found.key, encode(value), found.version)

    async def delete_partitioned(
        self, name: TopicName, *, force: bool, unless_partitions: bool = False
    ) -> None:
        """Deletes a partitioned topic and its partitions, atomically when they fit in one transaction.

        Raises TopicBusy while a client is connected to a partition, unless `force`; with `unless_partitions`
        (deletion by inactivity) while any partition exists. Raises TopicNotFound, BeingChanged during a
        concurrent change, StorageError, MetadataError. An interrupted deletion of more partitions continues
        with the next call: the metadata of the topic is deleted last.
        """
        registry = self._registry
        async with self._alone(name), registry.exclusions.deleting(name):
            found = await self._existing(name)
            count = decode(PartitionedTopic, found.value).partitions
            # No partition is loaded from here on.
            await registry.loads_done(lambda each: each.base == name)
            if unless_partitions:
                for index in range(count):
                    if await registry.exists(name.partition(index)):
                        raise TopicBusy(f"topic {name} has partitions")
                if self.elsewhere is not None:
                    await self._delete_metadata(name, found, count, self.elsewhere)
                    return
            loaded = [
                topic
                for index in range(count)
                if (topic := registry.loaded.get(name.partition(index).full)) is not None
            ]
            for topic in loaded:
                check_deletable(topic, force=force)
            for topic in loaded:
                topic.disconnect_clients(EndCode.TOPIC_DELETED)
            for first in range(0, len(loaded), CLOSED_AT_ONCE):
                some = loaded[first : first + CLOSED_AT_ONCE]
                await asyncio.gather(*(registry.unload(topic.name) for topic in some))
            await self._delete_all(name, found, count)
        log.info("partitioned topic deleted", topic=name.full, partitions=count)

    async def _delete_metadata(
        self, name: TopicName, found: Versioned, count: int, elsewhere: RemoteTopics
    ) -> None:
        """Deletes metadata of deleted partitions, in a transaction that excludes a concurrent creation.

        Raises TopicBusy.
        """
        busy = TopicBusy(f"topic {name} has partitions")
        ops = list(await self._registry.said_of_partitioned(found, name, keep_grants=True))
        if not name.persistent:
            theirs = map(TopicName.parse, await elsewhere.non_persistent(name.namespace))
            if any(each.base == name for each in theirs):
                raise busy
        else:
            ops += [Check(self._keys.topic_head(name.partition(index)), ABSENT) for index in range(count)]
        if len(ops) > TXN_OPS_MAX:
            raise TopicBusy(
                f"topic {name} has too many partitions to exclude a concurrent creation in one transaction"
            )
        try:
            await self._metadata.commit(ops)
        except VersionMismatch as error:
            raise busy from error
        log.info("partitioned topic deleted", topic=name.full, partitions=count)

    async def _delete_all(self, name: TopicName, found: Versioned, count: int) -> None:
        """Deletes all partitions; those that were never used or are already deleted do not exist."""
        said = await self._registry.said_of_partitioned(found, name)
        names = [name.partition(index).full for index in range(count)] if name.persistent else []
        left = min(len(names), deleted_at_once(said))
        alone = deleted_at_once()
        for first in range(0, len(names) - left, alone):
            await delete_managed_ledgers(self._ledgers, names[first : min(first + alone, len(names) - left)])
        await delete_managed_ledgers(self._ledgers, names[len(names) - left :], said)
        now = await self._metadata.get(found.key)
        if now is not None and now.version == found.version:  # none of them existed
            await self._metadata.commit(said)

    @asynccontextmanager
    async def _alone(self, name: TopicName) -> AsyncIterator[None]:
        """Excludes concurrent changes of a partitioned topic, so that no partition is left without its
        topic.
        """
        if name.full in self._changing:
            raise BeingChanged(f"partitioned topic {name} is being changed; retry")
        self._changing.add(name.full)
        try:
            yield
        finally:
            self._changing.discard(name.full)

    async def _existing(self, name: TopicName) -> Versioned:
        found = await self._metadata.get(self._keys.partitioned_topic(name))
        if found is None:
            raise TopicNotFound(f"partitioned topic {name} does not exist")
        return found

    def _check_count(self, partitions: int) -> None:
        if partitions < 1:
            raise InvalidPartitions("the number of partitions must be more than 0")
        partitions_max = self._config.partitions_max or PARTITIONS_MAX
        if partitions > partitions_max:
            raise InvalidPartitions(
                f"the number of partitions must be at most {partitions_max} "
                "(maxNumPartitionsPerPartitionedTopic)"
            )

    async def _put_new(
        self, name: TopicName, partitions: int, properties: dict[str, str], *, alone: bool
    ) -> None:
        if name.partition_index >= 0:
            raise InvalidName(
                f"{name.full!r} is the name of a partition; the name of a partitioned topic must not end "
                "in -partition-<number>"
            )
        self._check_count(partitions)
        with self._registry.exclusions.creating(name, alone=alone):
            await self._put_metadata(name, partitions, properties)
        log.info("partitioned topic created", topic=name.full, partitions=partitions)

    async def _put_metadata(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        await self._registry.check_allowed(name)
        if await self._registry.exists(name):
            raise TopicExists(f"topic {name} already exists and is not partitioned")
        await self._registry.check_room(name, partitions)
        key = self._keys.partitioned_topic(name)
        value = PartitionedTopic(
            partitions=partitions, properties=properties, created_ms=self._ledgers.clock.wall_ms()
        )
        namespace = await self._metadata.get(self._keys.namespace(name.namespace))
        if namespace is None:
            raise NamespaceNotFound(f"namespace {name.namespace} does not exist; create it first")
        ops: list[Op] = [Put(key, encode(value), ABSENT), Check(namespace.key, namespace.version)]
        if name.persistent:
            ops.append(Check(self._keys.topic_head(name), ABSENT))
        try:
            await self._metadata.commit(ops)
        except VersionMismatch as error:
            if error.key == namespace.key:
                raise BeingChanged(f"namespace {name.namespace} is being changed; retry") from error
            raise TopicExists(f"topic {name} already exists") from error
        except UnknownOutcome:
            found = await self._metadata.get(key)
            if found is None or found.value != encode(value):
                raise

    async def _make_partitions(self, name: TopicName, indexes: range) -> None:
        if name.persistent:
            names = [name.partition(index).full for index in indexes]
            guards = partial(guards_of, self._metadata, self._keys, name.partition(0), partition=True)
            await create_managed_ledgers(self._ledgers, names, guards=guards)

    async def _subscribe_alike(self, name: TopicName, new: range) -> None:
        try:
            first = await self._registry.get(name.partition(0), create=False)
        except TopicNotFound:
            return  # it was never used, so it has no subscriptions
        if first.subscriptions:
            for index in new:
                partition = await self._registry.get(name.partition(index), create=False)
                await partition.subscriptions.adopt(first.subscriptions)
