"""Watches partitioned topics for partitions that are added: one task for all of a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.client.errors import ClientError
from magnetar.client.lookup import Lookup
from magnetar.common.naming.topic_name import TopicName

_log = logging.getLogger(__name__)

EVERY_S: Final = 60.0

OnGrown = Callable[[int], Awaitable[None]]
"""Opens what is missing for a topic that has so many partitions now."""


class PartitionGrowth:
    """Asks for the number of partitions of the watched topics every minute."""

    def __init__(self, lookup: Lookup, every_s: float = EVERY_S) -> None:
        self._lookup = lookup
        self._every_s = every_s
        self._watched: dict[object, tuple[TopicName, int, OnGrown]] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, owner: object, topic: TopicName, count: int, on_grown: OnGrown) -> None:
        """Calls `on_grown` when the topic has more than `count` partitions."""
        self._watched[owner] = topic, count, on_grown
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def forget(self, owner: object) -> None:
        """Ends a watch."""
        self._watched.pop(owner, None)

    async def close(self) -> None:
        """Ends all watches."""
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Asks for all watched topics now."""
        counts: dict[str, int] = {}
        for owner, (topic, known, on_grown) in list(self._watched.items()):
            try:
                if topic.full not in counts:
                    counts[topic.full] = await self._lookup.partition_count(topic, creates=False)
                count = counts[topic.full]
                if count > known and owner in self._watched:
                    await on_grown(count)
                    if owner in self._watched:
                        self._watched[owner] = topic, count, on_grown
            except ClientError as error:
                _log.info("%s: cannot ask for new partitions: %s", topic.full, error)
            except Exception:  # A mistake: it must not end the watch of the other topics.
                _log.exception("%s: cannot open new partitions", topic.full)

    async def _run(self) -> None:
        while self._watched:
            await asyncio.sleep(self._every_s)
            await self.look()
        self._task = None
