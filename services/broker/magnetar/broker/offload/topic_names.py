"""Persistent topics by name or pattern: partitions instead of partitioned topics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from typing import Final

from magnetar.broker.topics.watch.topic_pattern import linear_pattern
from magnetar.common.errors import NamespaceNotFound, NotAllowed, TopicNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import PartitionedTopic, decode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT, TopicName, is_system_topic
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

TOPICS_MAX: Final = 50_000
NAMES_BYTES_MAX: Final = 6 << 20
"""Maximum bytes of names in one response."""

PATTERN_CHARS_MAX: Final = 4_096
"""Maximum characters of a pattern: refusing a longer one would take long."""

SLICE_S: Final = 0.002
"""Seconds of matching before other tasks get the event loop: an expensive pattern takes a millisecond per
name.
"""

_IN_NAMESPACE: Final = re.compile(r"\^?(?:persistent://)([\w-]+)/([\w-]+)/(?![*+?{])")
"""Start of a pattern that can match only topics of one namespace."""


class _Found:
    """The names collected for one answer, up to its limits."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._byte_length = 0

    def add(self, topic: TopicName) -> None:
        """Adds a name. Raises NotAllowed when it does not fit."""
        if topic.full in self.names:
            return
        self._byte_length += len(topic.full.encode())
        if len(self.names) >= TOPICS_MAX or self._byte_length > NAMES_BYTES_MAX:
            raise NotAllowed(
                f"more than {len(self.names)} topics are too many for one response: request fewer, by "
                "names or a narrower pattern"
            )
        self.names[topic.full] = None


class TopicNames:
    """Finds the topics of a cluster in metadata."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._matchers = asyncio.Semaphore(1)

    async def persistent(self, name: str) -> TopicName:
        """Parses the name of one persistent topic.

        Raises InvalidName, NotAllowed for a non-persistent topic, TopicNotFound for a partitioned topic and
        for one that does not exist.
        """
        topic = TopicName.parse(name)
        if not topic.persistent:
            raise NotAllowed(f"topic {topic} is not persistent: it has no ledgers")
        if await self._metadata.get(self._keys.topic_head(topic)) is None:
            count = await self._partitions(topic)
            if count:
                raise TopicNotFound(
                    f"topic {topic} is partitioned: request {topic.partition(0)} and so on, {count} in all"
                )
            raise TopicNotFound(f"topic {topic} does not exist")
        return topic

    async def find(self, names: Iterable[str], pattern: str) -> list[str]:
        """Returns full names: first those of `names` in their order, then those of the pattern.

        Raises InvalidName, NotAllowed, TopicNotFound, NamespaceNotFound, MetadataError.
        """
        found = _Found()
        for name in dict.fromkeys(names):
            for topic in await self._named(name):
                found.add(topic)
        if pattern:
            async with self._matchers:
                async for topic in self._matching(pattern):
                    found.add(topic)
        return list(found.names)

    async def _named(self, name: str) -> list[TopicName]:
        topic = TopicName.parse(name)
        if topic.persistent and topic.partition_index < 0:
            count = await self._partitions(topic)
            if count:
                partitions = map(topic.partition, range(count))
                return [each for each in partitions if await self._exists(each)]
        return [await self.persistent(name)]

    async def _matching(self, pattern: str) -> AsyncIterator[TopicName]:
        """Yields matching topics; the pattern has to match the whole name of the topic or of its partitioned
        topic.
        """
        if len(pattern) > PATTERN_CHARS_MAX:
            raise NotAllowed(
                f"a topics pattern has at most {PATTERN_CHARS_MAX} characters, not {len(pattern)}: use "
                "several patterns, or topic names"
            )
        time = asyncio.get_running_loop().time
        since = time()
        matches = linear_pattern(pattern, f"topics pattern {pattern[:200]!r}").fullmatch
        for namespace in await self._namespaces(pattern):
            prefix = self._keys.topic_heads_prefix(PERSISTENT, namespace)
            async for item in iterate_cooperatively((await self._metadata.children(prefix)).items):
                topic = self._keys.topic_of_head(item.key)
                if is_system_topic(topic):
                    continue
                if matches(topic.full) is not None or matches(topic.base.full) is not None:
                    yield topic
                if time() - since > SLICE_S:
                    await asyncio.sleep(0)
                    since = time()

    async def _namespaces(self, pattern: str) -> list[NamespaceName]:
        begins = _IN_NAMESPACE.match(pattern)
        if begins is not None and "|" not in pattern:
            namespace = NamespaceName(begins[1], begins[2])
            if await self._metadata.get(self._keys.namespace(namespace)) is None:
                raise NamespaceNotFound(f"namespace {namespace} does not exist")
            return [namespace]
        listing = await self._metadata.children(self._keys.namespaces_prefix())
        return [self._keys.namespace_of(item.key) for item in listing.items]

    async def _partitions(self, topic: TopicName) -> int:
        """Returns the number of partitions; 0 for a topic that is not partitioned."""
        if topic.partition_index >= 0:
            return 0
        found = await self._metadata.get(self._keys.partitioned_topic(topic))
        return 0 if found is None else decode(PartitionedTopic, found.value).partitions

    async def _exists(self, topic: TopicName) -> bool:
        return await self._metadata.get(self._keys.topic_head(topic)) is not None
