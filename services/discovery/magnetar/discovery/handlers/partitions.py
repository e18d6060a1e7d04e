"""How many partitions a topic has, by what metadata says of it."""

from __future__ import annotations

from typing import Final

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import PartitionedTopic, decode
from magnetar.common.naming.topic_name import TopicName

NOT_PARTITIONED: Final = 0


class PartitionCounts:
    """Reads metadata; changes nothing there."""

    __slots__ = ("_keys", "_metadata")

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys

    async def of(self, topic: TopicName) -> int | None:
        """The number of partitions, 0 of a topic without; None when metadata knows no such topic.

        A non-persistent topic without partitions is known to its broker only. Raises MetadataError.
        """
        found = await self._metadata.get(self._keys.partitioned_topic(topic))
        if found is not None:
            return decode(PartitionedTopic, found.value).partitions
        if topic.persistent and await self._metadata.get(self._keys.topic_head(topic)) is not None:
            return NOT_PARTITIONED
        return None
