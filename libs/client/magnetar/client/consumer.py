"""A consumer of topics, partitions, or all topics that match a pattern, as one stream of messages."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from magnetar.client.client import Client
from magnetar.client.errors import ClientError
from magnetar.client.messages import Incoming
from magnetar.client.partition_consumer import ConsumerOptions, PartitionConsumer
from magnetar.common.naming.topic_name import TopicName

DISCOVERY_S: Final = 60.0
"""Interval in seconds between searches for new topics that match a pattern."""


class Consumer:
    """A subscription of the same name on each topic."""

    def __init__(self, client: Client, options: ConsumerOptions) -> None:
        self._client = client
        self._options = options
        self._partitions: dict[str, PartitionConsumer] = {}
        self._queue: deque[tuple[int, Incoming]] = deque()
        self._news = asyncio.Event()
        self._failed: ClientError | None = None
        self._discovery: asyncio.Task[None] | None = None

    @staticmethod
    async def open(client: Client, topics: list[str], options: ConsumerOptions) -> Consumer:
        """Opens a consumer. Raises Refused, ConnectionLost, InvalidName."""
        consumer = Consumer(client, options)
        names: list[str] = []
        for topic in topics:
            names += await client.partitions(TopicName.parse(topic))
        await consumer._add(names)
        return consumer

    @staticmethod
    async def open_pattern(client: Client, pattern: str, options: ConsumerOptions) -> Consumer:
        """Opens a consumer of a pattern; topics that match later are added. Raises as `open`."""
        consumer = Consumer(client, options)
        await consumer._add(await client.topics_matching(pattern))
        consumer._discovery = asyncio.ensure_future(consumer._discover(pattern))
        return consumer

    @property
    def topics(self) -> list[str]:
        """The consumed topics, with partitions listed one by one."""
        return sorted(self._partitions)

    async def receive(self) -> Incoming:
        """Returns the next message. Raises ClientError once no more can arrive."""
        while True:
            while self._queue:
                opened, message = self._queue.popleft()
                partition = self._partitions.get(message.topic)
                if partition is not None and opened == partition.opened:
                    partition.taken(1)
                    return message
            if self._failed is not None:
                raise self._failed
            self._news.clear()
            await self._news.wait()

    def ack(self, message: Incoming) -> None:
        partition = self._partitions.get(message.topic)
        if partition is not None:
            partition.ack(message)

    async def close(self) -> None:
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.gather(self._discovery, return_exceptions=True)
        await asyncio.gather(*(partition.close() for partition in self._partitions.values()))

    async def _add(self, names: list[str]) -> None:
        made = [self._partition(name) for name in names if name not in self._partitions]
        try:
            async with asyncio.TaskGroup() as group:
                for partition in made:
                    group.create_task(partition.open())
        except BaseExceptionGroup as errors:
            for partition in made:
                if not partition.opened:
                    del self._partitions[partition.topic]
            raise errors.exceptions[0] from None

    def _partition(self, name: str) -> PartitionConsumer:
        def deliver(messages: list[Incoming]) -> None:
            # Messages queued here while their consumer is reopened are delivered again: skip the queued ones.
            opened = partition.opened
            self._queue.extend([(opened, message) for message in messages])
            self._news.set()

        def fail(error: ClientError) -> None:
            if self._discovery is not None:
                del self._partitions[
                    name
                ]  # One of many topics is gone; discovery adds it again if it returns.
            else:
                self._failed = self._failed or error
                self._news.set()

        partition = PartitionConsumer(self._client, name, self._options, deliver, fail)
        self._partitions[name] = partition
        return partition

    async def _discover(self, pattern: str) -> None:
        while True:
            await asyncio.sleep(DISCOVERY_S)
            try:
                await self._add(await self._client.topics_matching(pattern))
            except ClientError:
                continue  # Existing consumers continue; the next search may succeed.
