"""Changes of policies, by compare-and-set: of two operators who change two at once, both have their way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from magnetar.common.errors import (
    NamespaceNotFound,
    NotAllowed,
    TopicNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Check, Delete, MetadataStore, Op, Put
from magnetar.common.metadata.values import Namespace, Policies, TopicPolicies, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import DOMAINS, TopicName

TRIES_MAX: Final = 10
"""Of one change; beyond that somebody writes all the time, and the caller hears of the conflict."""

NAMESPACE_BYTES_MAX: Final = 524_288
"""Of all that is said of one namespace: etcd takes values of 1.5 MB, and it is read for each change."""

TOPIC_POLICIES_BYTES_MAX: Final = 65_536
"""Of one topic's own policies: they may name any number of subscriptions, and are kept while it is loaded."""


class PolicyWriter:
    """Changes what namespaces and topics say of their own."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._again = asyncio.Lock()
        # Held by whoever tries again: of many at this broker each loses once, and then they go one by one.

    async def namespace(self, name: NamespaceName) -> Namespace:
        """What a namespace says now, read from the store. Raises NamespaceNotFound, MetadataError."""
        return (await self._read_namespace(name))[0]

    async def topic(self, name: TopicName) -> Policies:
        """What a topic says of its own now; nothing when it says nothing. Raises MetadataError."""
        found = await self._metadata.get(self._keys.topic_policies(name))
        return Policies() if found is None else decode(TopicPolicies, found.value).policies

    async def permissions_of_topics(self, name: NamespaceName) -> dict[str, dict[str, list[str]]]:
        """What each role may do on the namespace's topics that have permissions. Raises MetadataError."""
        found: dict[str, dict[str, list[str]]] = {}
        for domain in DOMAINS:
            listing = await self._metadata.children(self._keys.topic_policies_prefix(domain, name))
            for item in listing.items:
                permissions = decode(TopicPolicies, item.value).policies.permissions
                if permissions:
                    topic = self._keys.topic_of_policies(item.key).full
                    found[topic] = {role: list(each.names) for role, each in sorted(permissions.items())}
        return found

    async def change_namespace(self, name: NamespaceName, edit: Callable[[Namespace], None]) -> None:
        """Apply `edit` to the namespace as it is; done again on what others made of it meanwhile.

        What `edit` raises is raised, and nothing is written. Raises NamespaceNotFound, NotAllowed when it
        became too large, VersionMismatch when others are always faster, MetadataError.
        """
        await self._until_written(partial(self._try_namespace, name, edit))

    async def _try_namespace(self, name: NamespaceName, edit: Callable[[Namespace], None]) -> None:
        value, version = await self._read_namespace(name)
        before = encode(value)
        edit(value)
        after = encode(value)
        if after == before:
            return
        if len(after) > max(len(before), NAMESPACE_BYTES_MAX):
            raise NotAllowed(
                f"what is said of {name} would have {len(after)} bytes, at most {NAMESPACE_BYTES_MAX} "
                "are allowed: remove permissions or properties that nobody needs"
            )
        await self._metadata.put(self._keys.namespace(name), after, version)

    async def change_topic(self, name: TopicName, edit: Callable[[Policies], None]) -> None:
        """Apply `edit` to the policies of a topic, which must not be a partition; see `change_namespace`.

        The topic (or its partitions' metadata) is there when they are written: policies never outlive it.
        Raises TopicNotFound, NotAllowed when they became too large.
        """
        await self._until_written(partial(self._try_topic, name, edit))

    async def _try_topic(self, name: TopicName, edit: Callable[[Policies], None]) -> None:
        key = self._keys.topic_policies(name)
        guards = await self._guards(name)
        found = await self._metadata.get(key)
        value = TopicPolicies() if found is None else decode(TopicPolicies, found.value)
        before = value.policies.SerializeToString(deterministic=True)
        edit(value.policies)
        after = value.policies.SerializeToString(deterministic=True)
        if after == before:
            return
        if len(after) > max(len(before), TOPIC_POLICIES_BYTES_MAX):
            raise NotAllowed(
                f"the policies of {name} would have {len(after)} bytes, at most "
                f"{TOPIC_POLICIES_BYTES_MAX} are allowed: remove those of subscriptions that are gone"
            )
        version = ABSENT if found is None else found.version
        change: Op = Put(key, encode(value), version) if after else Delete(key, version)
        await self._metadata.commit([change, *guards])

    async def _until_written(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """After an unknown outcome the next look finds it done, or does it."""
        try:
            await attempt()
            return
        except (VersionMismatch, UnknownOutcome):
            pass
        async with self._again:
            for _ in range(TRIES_MAX - 2):
                try:
                    await attempt()
                    return
                except (VersionMismatch, UnknownOutcome):
                    continue
            await attempt()

    async def _read_namespace(self, name: NamespaceName) -> tuple[Namespace, int]:
        found = await self._metadata.get(self._keys.namespace(name))
        if found is None:
            raise NamespaceNotFound("Namespace does not exist")
        return decode(Namespace, found.value), found.version

    async def _guards(self, name: TopicName) -> list[Op]:
        found = await self._metadata.get(self._keys.partitioned_topic(name))
        if found is None and name.persistent:
            found = await self._metadata.get(self._keys.topic_head(name))
        if found is not None:
            return [Check(found.key, found.version)]
        if name.persistent:
            raise TopicNotFound(f"Topic {name} not found")
        # Nobody writes down that it is there; its namespace has to be.
        namespace = await self._metadata.get(self._keys.namespace(name.namespace))
        if namespace is None:
            raise NamespaceNotFound("Namespace does not exist")
        return [Check(namespace.key, namespace.version)]
