"""Partition counts of topics, from metadata."""

from __future__ import annotations

from typing import Final

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import PartitionedTopic, decode
from magnetar.common.naming.topic_name import TopicName

NOT_PARTITIONED: Final = 0


class PartitionCounts:
    """Reads partition counts from metadata; read-only."""

    __slots__ = ("_keys", "_metadata")

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys

    async def of(self, topic: TopicName) -> int | None:
        """Return the number of partitions, 0 for a non-partitioned topic; None when the topic is not in
        metadata.

        Non-partitioned non-persistent topics are known only to their broker. Raises MetadataError.
        """
        found = await self._metadata.get(self._keys.partitioned_topic(topic))
        if found is not None:
            return decode(PartitionedTopic, found.value).partitions
        if topic.persistent and await self._metadata.get(self._keys.topic_head(topic)) is not None:
            return NOT_PARTITIONED
        return None
