"""Policies in metadata, and notifications of their changes.

A topic's policies are read when it loads; changes reach loaded topics through watches. Watches are hints: a
lost watch is restarted and everything loaded is read again, and a value is always read, never patched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from magnetar.broker.policies.config import PolicyDefaults
from magnetar.broker.policies.effective_policies import (
    BROKER,
    EffectivePolicies,
    NamespacePolicies,
    resolve,
    resolve_namespace,
)
from magnetar.broker.policies.policy_origins import PolicyOrigin, policy_origins, policy_value
from magnetar.broker.policies.schema_policies import rules_of_system_topics
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, Policies, TopicPolicies, decode
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName, is_system_topic

Changed = Callable[[NamespaceName | None, TopicName | None], None]
"""A callback for changed policies of a namespace or of a topic; both None: any may have changed."""


class PolicyStore:
    """The policies in effect for namespaces and topics, cached while metadata is watched."""

    def __init__(self, config: PolicyDefaults, metadata: MetadataStore, keys: Keys) -> None:
        self._config = config
        self._metadata = metadata
        self._keys = keys
        self._namespaces: dict[NamespaceName, NamespacePolicies] = {}
        self._watched: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: Changed | None = None
        self.generation = 0
        """Incremented with each observed change: earlier reads may be stale."""

    def start(self, changed: Changed) -> None:
        """Starts the watches until `close`; `changed` is called on the event loop for each change."""
        assert not self._tasks, "policies are already watched"
        self._changed = changed
        followed = (
            ("policies of namespaces", self._keys.namespaces_prefix(), self._namespace_changed),
            ("policies of topics", self._keys.topic_policies_prefix(), self._topic_changed),
        )
        self._tasks = [
            asyncio.create_task(follow_for_ever(name, partial(self._follow, prefix, told)), name=name)
            for name, prefix, told in followed
        ]

    async def close(self) -> None:
        """Stops the watches; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def of_namespace(self, namespace: NamespaceName) -> NamespacePolicies:
        """Returns the policies in effect for a namespace. Raises NamespaceNotFound, MetadataError."""
        known = self._namespaces.get(namespace)
        if known is not None:
            return known
        generation = self.generation
        found = await self._metadata.get(self._keys.namespace(namespace))
        if found is None:
            raise NamespaceNotFound(f"namespace {namespace} does not exist; create it first")
        value = decode(Namespace, found.value)
        policies = resolve_namespace(self._config, value.policies, dict(value.properties))
        if self._keys.namespaces_prefix() in self._watched and generation == self.generation:
            self._namespaces[namespace] = policies
        return policies

    async def of_topic(self, name: TopicName) -> EffectivePolicies:
        """Returns the policies in effect for a topic. Raises NamespaceNotFound, MetadataError."""
        policies = await self._of_topic(name)
        if is_system_topic(name):
            return replace(policies, schemas=rules_of_system_topics(self._config.policies.schemas))
        return policies

    async def _of_topic(self, name: TopicName) -> EffectivePolicies:
        of_namespace = await self.of_namespace(name.namespace)
        if not self._config.policies.of_topics:
            return of_namespace.of_topics
        found = await self._metadata.get(self._keys.topic_policies(name))
        if found is None:
            return of_namespace.of_topics
        return resolve(self._config, of_namespace.own, decode(TopicPolicies, found.value).policies)

    async def origins_of(self, name: TopicName) -> list[PolicyOrigin]:
        """Returns each policy in effect for a topic with its level. Raises NamespaceNotFound,
        MetadataError.
        """
        of_namespace = await self.of_namespace(name.namespace)
        own = Policies()
        if self._config.policies.of_topics:
            found = await self._metadata.get(self._keys.topic_policies(name))
            if found is not None:
                own = decode(TopicPolicies, found.value).policies
        origins = policy_origins(self._config, of_namespace.own, own)
        if is_system_topic(name):
            # No policy changes the rules of their schemas.
            rules = policy_value("schemas", await self.of_topic(name))
            fixed = PolicyOrigin("schemas", BROKER, rules, rules, rules)
            origins = [fixed if each.name == fixed.name else each for each in origins]
        return origins

    def wrote(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """Applies a change that this broker has just written, without waiting for the watch."""
        if namespace is not None:
            self._namespaces.pop(namespace, None)
        self._tell(namespace, topic)

    def configuration_changed(self) -> None:
        """Reports changed defaults: those where neither topic nor namespace sets a policy."""
        self._everything_changed()

    def _namespace_changed(self, key: str) -> None:
        namespace = self._keys.namespace_of(key)
        self._namespaces.pop(namespace, None)
        self._tell(namespace, None)

    def _topic_changed(self, key: str) -> None:
        self._tell(None, self._keys.topic_of_policies(key))

    def _everything_changed(self) -> None:
        self._namespaces.clear()
        self._tell(None, None)

    def _forget(self) -> None:
        """Drops the cache, because it may be stale from here on."""
        self._namespaces.clear()
        self.generation += 1

    def _tell(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        self.generation += 1
        if self._changed is not None and self._tasks:
            self._changed(namespace, topic)

    async def _follow(self, prefix: str, changed: Callable[[str], None]) -> None:
        """Watches a prefix until the watch fails or the store is closed."""
        changes = self._metadata.watch(prefix)
        try:
            self._watched.add(prefix)
            # Changes before the watch are read now; the watch delivers later ones.
            self._everything_changed()
            async for change in changes:
                changed(change.key)
        finally:
            self._watched.discard(prefix)
            self._forget()
            await changes.aclose()
