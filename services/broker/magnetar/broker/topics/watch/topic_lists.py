"""Topics of watched namespaces, updated as topics are created and deleted.

Persistent topics are watched in metadata; after a lost watch the difference is computed and reported.
Non-persistent topics exist only in their brokers: this broker's registry reports its own, and other brokers
are polled. A namespace is followed only while it has watchers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from magnetar.broker.peer import Peer
from magnetar.broker.topics.registry.remote_topics import RemoteTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.watch.topic_list_watcher import MatchingTopics, TopicListWatcher
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.errors import MagnetarError, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import NON_PERSISTENT, PERSISTENT, TopicName, is_system_topic
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

ELSEWHERE_S: Final = 5.0
"""Seconds between two requests to other brokers for non-persistent topics, with watchers."""


class _NamespaceTopics:
    """The topics of one domain of a namespace, as their watchers need them."""

    __slots__ = ("by_pattern", "names", "ready", "task")

    def __init__(self) -> None:
        self.names: set[TopicName] = set()
        self.by_pattern: dict[str, MatchingTopics] = {}
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    def change(self, name: TopicName, there: bool) -> None:
        if there == (name in self.names) or is_system_topic(name):
            return
        if there:
            self.names.add(name)
        else:
            self.names.discard(name)
        for matching in self.by_pattern.values():
            matching.change(name, there)

    def replace(self, names: Iterable[TopicName]) -> None:
        """Replaces the topics and reports the differences."""
        now = set(names)
        for gone in self.names - now:
            self.change(gone, False)
        for new in now - self.names:
            self.change(new, True)


class TopicLists:
    """Watchers of topics by namespace. Lives on one event loop, ends with `close`."""

    def __init__(self, metadata: MetadataStore, keys: Keys, registry: TopicRegistry) -> None:
        self._metadata = metadata
        self._keys = keys
        self._registry = registry
        self._followed: dict[tuple[str, NamespaceName], _NamespaceTopics] = {}
        registry.on_non_persistent = self._non_persistent_changed
        self.elsewhere: RemoteTopics | None = None
        """Topics loaded by other brokers; None without other brokers."""

    async def non_persistent(self, namespace: NamespaceName, *, system_too: bool = False) -> list[str]:
        """Returns the full names of the namespace's non-persistent topics that any broker has loaded, sorted.

        Raises MagnetarError when a broker does not answer.
        """
        names = await self._registry.list(namespace, persistent=False, system_too=system_too)
        if self.elsewhere is None:
            return names
        theirs = await self.elsewhere.non_persistent(namespace)
        wanted = [name for name in theirs if system_too or not is_system_topic(TopicName.parse(name))]
        return sorted({*names, *wanted})

    async def watch(
        self, namespace: NamespaceName, watcher_id: int, pattern: TopicPattern, peer: Peer
    ) -> TopicListWatcher:
        """Returns a watcher of the namespace's topics, which sends changes after its `begin`.

        The caller ends it with `unwatch`. Raises MetadataError when the topics cannot be read now.
        """
        at = (pattern.domain, namespace)
        followed = self._followed.get(at)
        if followed is None:
            followed = self._followed[at] = self._follow(pattern.domain, namespace)
        matching = followed.by_pattern.get(pattern.text)
        if matching is None:
            matching = followed.by_pattern[pattern.text] = MatchingTopics(pattern, followed.names)
        watcher = TopicListWatcher(watcher_id, peer, matching)
        try:
            await asyncio.shield(followed.ready)
        except BaseException:
            self.unwatch(namespace, watcher)
            raise
        return watcher

    def unwatch(self, namespace: NamespaceName, watcher: TopicListWatcher) -> None:
        """Ends a watch; idempotent."""
        watcher.close()
        pattern = watcher.matching.pattern
        at = (pattern.domain, namespace)
        followed = self._followed.get(at)
        if followed is None or watcher.matching.watchers:
            return
        if followed.by_pattern.get(pattern.text) is watcher.matching:
            del followed.by_pattern[pattern.text]
        if not followed.by_pattern:
            del self._followed[at]
            if followed.task is not None:
                followed.task.cancel()

    async def close(self) -> None:
        """Stops all watches."""
        tasks = [each.task for each in self._followed.values() if each.task is not None]
        self._followed.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _follow(self, domain: str, namespace: NamespaceName) -> _NamespaceTopics:
        followed = _NamespaceTopics()
        if domain == NON_PERSISTENT:
            if self.elsewhere is None:
                followed.replace(self._loaded_here(namespace))
                followed.ready.set_result(None)
            else:
                followed.task = asyncio.create_task(
                    self._follow_brokers(namespace, followed, self.elsewhere), name=f"topics of {namespace}"
                )
        else:
            followed.task = asyncio.create_task(
                follow_for_ever("topics of namespaces", partial(self._follow_metadata, namespace, followed)),
                name=f"topics of {namespace}",
            )
        return followed

    def _loaded_here(self, namespace: NamespaceName) -> list[TopicName]:
        return [
            topic.name
            for topic in self._registry.loaded.values()
            if topic.name.domain == NON_PERSISTENT and topic.name.namespace == namespace
        ]

    async def _follow_brokers(
        self, namespace: NamespaceName, followed: _NamespaceTopics, elsewhere: RemoteTopics
    ) -> None:
        """Topics of other brokers, some seconds late; unreachable ones stay unchanged."""
        while True:
            try:
                theirs = await elsewhere.non_persistent(namespace)
            except MagnetarError as error:
                log.info("topics of other brokers cannot be listed", namespace=str(namespace), why=str(error))
            else:
                followed.replace([*self._loaded_here(namespace), *map(TopicName.parse, theirs)])
            if not followed.ready.done():
                followed.ready.set_result(None)
            await asyncio.sleep(ELSEWHERE_S)

    def _non_persistent_changed(self, name: TopicName, there: bool) -> None:
        followed = self._followed.get((NON_PERSISTENT, name.namespace))
        if followed is not None:
            followed.change(name, there)

    async def _follow_metadata(self, namespace: NamespaceName, followed: _NamespaceTopics) -> None:
        prefix = self._keys.topic_heads_prefix(PERSISTENT, namespace)
        topic_of = self._keys.topic_of_head
        changes = self._metadata.watch(prefix)
        try:
            listing = await self._metadata.children(prefix)
            followed.replace(topic_of(item.key) for item in listing.items)
            if not followed.ready.done():
                followed.ready.set_result(None)
            async for change in changes:
                if change.version > listing.revision:
                    followed.change(topic_of(change.key), change.value is not None)
        except WatchLost:
            raise
        except Exception as error:
            if followed.ready.done():
                raise
            # The waiting requests fail, and the next one retries.
            log.warning("topics cannot be watched", namespace=str(namespace), error=str(error))
            self._followed.pop((PERSISTENT, namespace), None)
            followed.ready.set_exception(error)
            followed.ready.exception()
        finally:
            await changes.aclose()
