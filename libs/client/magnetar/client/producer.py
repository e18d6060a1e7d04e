"""A producer for a topic, partitioned or not."""

from __future__ import annotations

import asyncio

from magnetar.client.client import Client
from magnetar.client.messages import Outgoing
from magnetar.client.partition_producer import OnSent, PartitionProducer, ProducerOptions
from magnetar.common.naming.topic_name import TopicName


def java_string_hash(text: str) -> int:
    """Returns Java's String.hashCode without its sign, by which Pulsar's clients map a key to a partition."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


class Producer:
    """Sends keyed messages to their key's partition, and others round-robin, a batch to each partition."""

    def __init__(self, partitions: list[PartitionProducer], batching: bool) -> None:
        self._partitions = partitions
        self._batching = batching
        self._current = 0

    @staticmethod
    async def open(client: Client, topic: str, options: ProducerOptions, on_sent: OnSent) -> Producer:
        """Opens a producer. Raises Refused, ConnectionLost, InvalidName."""
        names = await client.partitions(TopicName.parse(topic))
        partitions = [PartitionProducer(client, name, options, on_sent) for name in names]
        try:
            async with asyncio.TaskGroup() as group:
                for partition in partitions:
                    group.create_task(partition.open())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return Producer(partitions, options.batching)

    async def send(self, message: Outgoing, tag: float = 0.0) -> None:
        """Publishes a message; waits while too many are unconfirmed. Raises ClientError."""
        partition = self._choose(message)
        if not partition.has_room:
            await partition.room()
        partition.send(message, tag)

    async def flush(self) -> None:
        """Waits until every message sent is durable. Raises ClientError."""
        for partition in self._partitions:
            partition.flush_batches()
        for partition in self._partitions:
            await partition.flushed()

    async def close(self) -> None:
        await asyncio.gather(*(partition.close() for partition in self._partitions))

    def _choose(self, message: Outgoing) -> PartitionProducer:
        partitions = self._partitions
        if len(partitions) == 1:
            return partitions[0]
        if message.key is not None:
            return partitions[java_string_hash(message.key) % len(partitions)]
        if not self._batching or partitions[self._current].between_batches:
            self._current = (self._current + 1) % len(partitions)
        return partitions[self._current]
