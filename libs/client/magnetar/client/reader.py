"""A reader: a place in a topic that is kept by the application, without acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

from magnetar.client.consumer.consumer import Consumer
from magnetar.client.consumer.topic_consumer import TopicConsumer
from magnetar.client.errors import Closed
from magnetar.client.messages import Message, MessageId

T = TypeVar("T")


class Reader(Generic[T]):
    """Reads a topic, partitioned or not, from a start; made by `Client.create_reader`."""

    def __init__(self, consumer: Consumer[T]) -> None:
        self._consumer = consumer

    @property
    def topics(self) -> list[str]:
        """The topics that are read, with partitions listed one by one."""
        return self._consumer.topics

    @property
    def is_connected(self) -> bool:
        """Whether all topics are open at their brokers now."""
        return self._consumer.is_connected

    @property
    def has_reached_end(self) -> bool:
        """Whether all topics are terminated and read to their ends."""
        return self._consumer.has_reached_end

    async def read(self, timeout_s: float | None = None) -> Message:
        """Returns the next message. Raises OperationTimeout after `timeout_s`, Closed, or the error with
        which the reader ended.
        """
        message = await self._consumer.receive(timeout_s)
        # What was read is no backlog; brokers show it so.
        message.consumer.acknowledge_cumulative(message.id, message.entry)
        return message

    async def has_message_available(self) -> bool:
        """Returns whether `read` has a message now, or will have one that is stored already.

        Raises Refused, ConnectionLost.
        """
        if self._consumer.has_queued:
            return True
        found = await asyncio.gather(*(self._is_behind(each) for each in self._consumer.topic_consumers))
        return self._consumer.has_queued or any(found)

    async def seek(self, to: MessageId | int) -> None:
        """Moves the reader to a message, after which it continues (from which, with start_inclusive), or to a
        publish time in milliseconds since 1970. Raises Refused, ConnectionLost.
        """
        await self._consumer.seek(to)

    async def close(self) -> None:
        """Closes the reader."""
        await self._consumer.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields messages until the reader is closed. Raises the error with which it ended."""
        while True:
            try:
                yield await self.read()
            except Closed:
                return

    async def __aenter__(self) -> Reader[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _is_behind(self, topic: TopicConsumer) -> bool:
        """Returns whether the topic has a message after the last one that was taken."""
        answer = await topic.last_message_id()
        last = MessageId.from_data(answer.last_message_id)
        if last.entry_id < 0:
            return False
        taken = topic.last_taken
        if taken is not None:
            if taken.position != last.position:
                return taken.position < last.position
            return taken.batch_index < last.batch_index
        start = topic.start or MessageId.LATEST
        if start == MessageId.LATEST:
            # The broker put the cursor at the end of then; what came since is after its mark-delete position.
            if not answer.HasField("consumer_mark_delete_position"):
                return False
            return MessageId.from_data(answer.consumer_mark_delete_position).position < last.position
        if start.position != last.position:
            return start.position < last.position
        if topic.start_inclusive or start.batch_index < 0:
            return topic.start_inclusive
        return start.batch_index < last.batch_index
