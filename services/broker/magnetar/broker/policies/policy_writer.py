"""Changes policies by compare-and-set, so that concurrent changes of different policies all take effect."""

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
"""Attempts of one change; after the last one, the caller gets the conflict."""

NAMESPACE_BYTES_MAX: Final = 524_288
"""Limit of a namespace's metadata value: etcd accepts 1.5 MB, and each change reads it."""

TOPIC_POLICIES_BYTES_MAX: Final = 65_536
"""Limit of a topic's own policies: they may name many subscriptions, and stay in memory with the topic."""


class PolicyWriter:
    """Reads and changes the policies that namespaces and topics set."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._again = asyncio.Lock()
        # Held during retries: concurrent changes at this broker conflict once, then run one by one.

    async def namespace(self, name: NamespaceName) -> Namespace:
        """Reads a namespace's value from the store. Raises NamespaceNotFound, MetadataError."""
        return (await self._read_namespace(name))[0]

    async def topic(self, name: TopicName) -> Policies:
        """Reads a topic's own policies; empty when it sets none. Raises MetadataError."""
        found = await self._metadata.get(self._keys.topic_policies(name))
        return Policies() if found is None else decode(TopicPolicies, found.value).policies

    async def permissions_of_topics(self, name: NamespaceName) -> dict[str, dict[str, list[str]]]:
        """Reads the permissions that topics of a namespace set, by topic and role. Raises MetadataError."""
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
        """Applies `edit` to the current namespace value; retried after conflicting changes.

        Errors of `edit` are raised, and nothing is written. Raises NamespaceNotFound; NotAllowed when the
        result is too large; VersionMismatch when conflicts exhaust the retries; MetadataError.
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
                f"the metadata of {name} would have {len(after)} bytes, at most {NAMESPACE_BYTES_MAX} "
                "are allowed: remove unused permissions or properties"
            )
        await self._metadata.put(self._keys.namespace(name), after, version)

    async def change_topic(self, name: TopicName, edit: Callable[[Policies], None]) -> None:
        """Applies `edit` to the policies of a topic, which must not be a partition; see `change_namespace`.

        The write checks that the topic (or its partitions' metadata) exists, so policies never outlive it.
        Raises TopicNotFound; NotAllowed when the result is too large.
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
                f"{TOPIC_POLICIES_BYTES_MAX} are allowed: remove those of deleted subscriptions"
            )
        version = ABSENT if found is None else found.version
        change: Op = Put(key, encode(value), version) if after else Delete(key, version)
        await self._metadata.commit([change, *guards])

    async def _until_written(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Retries conflicts and unknown outcomes; an attempt that finds its change written does nothing."""
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
        # Metadata does not list non-persistent topics; the namespace must exist.
        namespace = await self._metadata.get(self._keys.namespace(name.namespace))
        if namespace is None:
            raise NamespaceNotFound("Namespace does not exist")
        return [Check(namespace.key, namespace.version)]
