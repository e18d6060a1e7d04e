"""Policies as they are in metadata, and the news of their changes.

A topic's policies are read when it loads; changes reach loaded topics through watches. Watches are hints: one
that was lost is made again, with a look at everything that is loaded, and an answer is always read, never
patched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from magnetar.broker.policies.config import PolicyDefaults
from magnetar.broker.policies.effective_policies import (
    EffectivePolicies,
    NamespacePolicies,
    resolve,
    resolve_namespace,
)
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, TopicPolicies, decode
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

Changed = Callable[[NamespaceName | None, TopicName | None], None]
"""Told that the policies of a namespace, of a topic, or (both None) of nobody knows whom have changed."""


class PolicyStore:
    """What holds for namespaces and topics now."""

    def __init__(self, config: PolicyDefaults, metadata: MetadataStore, keys: Keys) -> None:
        self._config = config
        self._metadata = metadata
        self._keys = keys
        self._namespaces: dict[NamespaceName, NamespacePolicies] = {}
        self._watched: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: Changed | None = None
        self.generation = 0
        """Goes up with each change seen: what was read before it may be stale."""

    def start(self, changed: Changed) -> None:
        """Follow changes until `close`; `changed` is called for each, from the event loop."""
        assert not self._tasks, "policies are followed already"
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
        """Follow no more; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def of_namespace(self, namespace: NamespaceName) -> NamespacePolicies:
        """Raises NamespaceNotFound, MetadataError."""
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
        """Raises NamespaceNotFound, MetadataError."""
        of_namespace = await self.of_namespace(name.namespace)
        if not self._config.policies.of_topics:
            return of_namespace.of_topics
        found = await self._metadata.get(self._keys.topic_policies(name))
        if found is None:
            return of_namespace.of_topics
        return resolve(self._config, of_namespace.own, decode(TopicPolicies, found.value).policies)

    def wrote(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        """This broker has just changed a namespace's or a topic's: no need to wait for the watch."""
        if namespace is not None:
            self._namespaces.pop(namespace, None)
        self._tell(namespace, topic)

    def configuration_changed(self) -> None:
        """What holds where neither topic nor namespace says anything is something else now."""
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
        """What is known may be old from here on."""
        self._namespaces.clear()
        self.generation += 1

    def _tell(self, namespace: NamespaceName | None, topic: TopicName | None) -> None:
        self.generation += 1
        if self._changed is not None and self._tasks:
            self._changed(namespace, topic)

    async def _follow(self, prefix: str, changed: Callable[[str], None]) -> None:
        """Until the watch fails or the store is closed."""
        changes = self._metadata.watch(prefix)
        try:
            self._watched.add(prefix)
            # Whatever has changed while nobody watched is read now, and later changes are heard.
            self._everything_changed()
            async for change in changes:
                changed(change.key)
        finally:
            self._watched.discard(prefix)
            self._forget()
            await changes.aclose()
