"""Compiled grants as metadata has them, kept fresh by watches, for services that decide often.

Three parts of metadata say what is granted: tenants name their admins, namespaces and topics have grants
among their policies. What is unknown is read once; watches bring each change. While metadata is away, what
was known last holds: a change could not be made there either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from magnetar.common.errors import MetadataError, NamespaceNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, Tenant, TopicPolicies, decode
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.decisions import Rights
from magnetar.common.security.authorization.grants import NO_GRANTS, Grants, compile_grants

KNOWN_MAX: Final = 65_536
"""Entries of one part that are kept; beyond it the part starts anew, and what is asked for is read again."""

Scope = str | NamespaceName | TopicName | None
"""The scope of a change: a tenant, a namespace, a topic (with its partitions), or anything."""

K = TypeVar("K", str, NamespaceName)
V = TypeVar("V")


class _Part(Generic[K, V]):
    """One family of metadata keys, compiled; None where there is no key."""

    def __init__(
        self,
        prefix: str,
        name_of: Callable[[str], K],
        compiled: Callable[[bytes], V],
        changed: Callable[[K | None], None],
    ) -> None:
        self.prefix = prefix
        self.watched = False
        self._known: dict[K, V | None] = {}
        self._name_of: Callable[[str], K] = name_of
        self._compiled = compiled
        self._changed: Callable[[K | None], None] = changed
        self._changes = 0

    def known(self, name: K) -> tuple[V | None] | None:
        """The value in a tuple when it is known for certain; otherwise None."""
        if not self.watched or name not in self._known:
            return None
        return (self._known[name],)

    async def get(self, metadata: MetadataStore, name: K, key: str, *, fresh: bool) -> V | None:
        known = None if fresh else self.known(name)
        if known is not None:
            return known[0]
        changes = self._changes
        try:
            found = await metadata.get(key)
        except MetadataError:
            if name in self._known:
                return self._known[name]
            raise
        value = None if found is None else self._compiled(found.value)
        if changes == self._changes:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[name] = value
        return value

    async def follow(self, metadata: MetadataStore) -> None:
        changes = metadata.watch(self.prefix)
        try:
            self._known.clear()
            self._changes += 1
            self.watched = True
            self._changed(None)
            async for event in changes:
                self._changes += 1
                name = self._name_of(event.key)
                value = None if event.value is None else self._compiled(event.value)
                if name in self._known:
                    same = self._known[name] == value
                    self._known[name] = value
                    if same:
                        continue
                self._changed(name)
        finally:
            self.watched = False
            self._changes += 1
            await changes.aclose()


class RightsCache:
    """The rights concerning topics, namespaces and tenants of one cluster. Use: `start`, then `close`."""

    def __init__(self, metadata: MetadataStore, keys: Keys, *, wildcards: bool) -> None:
        """`metadata` stays the caller's to close."""
        self._metadata = metadata
        self._keys = keys
        self._wildcards = wildcards
        self._told: Callable[[Scope], None] = lambda scope: None
        self._tasks: list[asyncio.Task[None]] = []
        self._assembled: dict[str, Rights] = {}
        self.generation = 0
        """Goes up with each change: what was decided before may be decided otherwise now."""
        self._tenants = _Part(keys.tenants_prefix, keys.tenant_of, _admins, self._tenant_changed)
        self._namespaces = _Part(
            keys.namespaces_prefix(), keys.namespace_of, self._of_namespace, self._namespace_changed
        )
        self._topics = _Part(
            keys.topic_policies_prefix(),
            lambda key: keys.topic_of_policies(key).full,
            self._of_topic,
            self._topic_changed,
        )

    def start(self, changed: Callable[[Scope], None]) -> None:
        """Follow metadata until `close`; `changed` is called for each change, from the event loop."""
        assert not self._tasks, "rights are followed already"
        self._told = changed
        self._tasks = [
            asyncio.create_task(follow_for_ever("rights: tenants", self._follow_tenants)),
            asyncio.create_task(follow_for_ever("rights: namespaces", self._follow_namespaces)),
            asyncio.create_task(follow_for_ever("rights: topics", self._follow_topics)),
        ]

    async def close(self) -> None:
        """Follow no more; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def everything_changed(self) -> None:
        """Tell of a change that is not in metadata and may concern everything."""
        self._tell(None)

    def known(self, topic: TopicName) -> Rights | None:
        """Return the rights concerning a topic if they are known for certain; otherwise None."""
        return self._assembled.get(topic.full)

    async def of_topic(self, topic: TopicName, *, fresh: bool = False) -> Rights:
        """Return the rights concerning a topic, read when they are not known, or `fresh` in any case.

        Raises NamespaceNotFound when there is no such tenant, MetadataError.
        """
        found = None if fresh else self._assembled.get(topic.full)
        if found is not None:
            return found
        generation = self.generation
        base = topic.base
        of_namespace = await self.of_namespace(topic.namespace, fresh=fresh)
        key = self._keys.topic_policies(base)
        own = await self._topics.get(self._metadata, base.full, key, fresh=fresh)
        rights = Rights(of_namespace.admins, of_namespace.namespace, own or NO_GRANTS)
        if generation == self.generation and self._followed:
            if len(self._assembled) >= KNOWN_MAX:
                self._assembled.clear()
            self._assembled[topic.full] = rights
        return rights

    async def of_namespace(self, namespace: NamespaceName, *, fresh: bool = False) -> Rights:
        """Return the rights concerning a namespace; one that does not exist grants nothing.

        Raises NamespaceNotFound when there is no such tenant, MetadataError.
        """
        of_tenant = await self.of_tenant(namespace.tenant, fresh=fresh)
        key = self._keys.namespace(namespace)
        grants = await self._namespaces.get(self._metadata, namespace, key, fresh=fresh)
        return Rights(of_tenant.admins, grants or NO_GRANTS)

    async def of_tenant(self, tenant: str, *, fresh: bool = False) -> Rights:
        """Return the rights concerning a tenant.

        Raises NamespaceNotFound when there is none, MetadataError.
        """
        admins = await self._tenants.get(self._metadata, tenant, self._keys.tenant(tenant), fresh=fresh)
        if admins is None:
            raise NamespaceNotFound("Tenant does not exist")
        return Rights(admins)

    @property
    def _followed(self) -> bool:
        return self._tenants.watched and self._namespaces.watched and self._topics.watched

    def _of_namespace(self, data: bytes) -> Grants:
        return compile_grants(decode(Namespace, data).policies, wildcards=self._wildcards)

    def _of_topic(self, data: bytes) -> Grants:
        return compile_grants(decode(TopicPolicies, data).policies, wildcards=self._wildcards)

    def _tenant_changed(self, tenant: str | None) -> None:
        self._tell(tenant)

    def _namespace_changed(self, namespace: NamespaceName | None) -> None:
        self._tell(namespace)

    def _topic_changed(self, full: str | None) -> None:
        self._tell(None if full is None else TopicName.parse(full))

    def _tell(self, scope: Scope) -> None:
        self.generation += 1
        self._assembled.clear()
        self._told(scope)

    async def _follow_tenants(self) -> None:
        try:
            await self._tenants.follow(self._metadata)
        finally:
            self._doubt()

    async def _follow_namespaces(self) -> None:
        try:
            await self._namespaces.follow(self._metadata)
        finally:
            self._doubt()

    async def _follow_topics(self) -> None:
        try:
            await self._topics.follow(self._metadata)
        finally:
            self._doubt()

    def _doubt(self) -> None:
        """A watch ended: what is known may be stale from here on."""
        self.generation += 1
        self._assembled.clear()


def _admins(data: bytes) -> frozenset[str]:
    return frozenset(decode(Tenant, data).admin_roles)


def concerns(scopes: set[Scope], topic: TopicName) -> bool:
    """Return whether a change of one of these scopes may change what is allowed on the topic."""
    return None in scopes or not scopes.isdisjoint((topic.base, topic.namespace, topic.tenant))
