"""A consumer of topics, partitions, or all topics that match a pattern, as one stream of messages."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from magnetar.client.consumer.acknowledgements import Position
from magnetar.client.consumer.dead_letters import DeadLetters
from magnetar.client.consumer.options import ConsumerOptions
from magnetar.client.consumer.topic_consumer import TopicConsumer
from magnetar.client.errors import ClientError, Closed, OperationTimeout
from magnetar.client.interceptors import ConsumerInterceptor, guarded
from magnetar.client.lookup import partition_names
from magnetar.client.messages import Message, MessageId, Receiver
from magnetar.client.schemas.schema import Schema, VersionedSchema
from magnetar.client.session import ClientParts
from magnetar.client.transactions.transaction import Transaction
from magnetar.common.naming.topic_name import TopicName

T = TypeVar("T")

_log = logging.getLogger(__name__)

Listener = Callable[["Consumer[Any]", Message], Awaitable[None] | None]
"""Called for each message in turn; it acknowledges. A coroutine function is awaited before the next message.
"""


class Consumer(Generic[T]):
    """A subscription of the same name on each of its topics; made by `Client.subscribe`."""

    def __init__(
        self,
        parts: ClientParts,
        options: ConsumerOptions,
        schema: Schema[T] | None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> None:
        self._parts = parts
        self._home = parts.home
        self._options = options
        self._schema = schema
        self._interceptors = interceptors
        self._topics: dict[str, TopicConsumer] = {}
        self._queue: deque[Message] = deque()
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._failed: ClientError | None = None
        self._is_closed = False
        self._listening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_pattern = False
        self._dead_letters: DeadLetters | None = None
        self._is_plain = not interceptors and options.dead_letter is None
        """Whether nothing but the consumer sees each message."""
        self._moving: set[asyncio.Task[None]] = set()
        self._is_versioned = isinstance(schema, VersionedSchema)
        self._schemas: dict[str, Schema[T] | None] = {}
        """By topic: versions count within one topic."""
        self._growing: list[object] = []

    @property
    def topics(self) -> list[str]:
        """The consumed topics, with partitions listed one by one."""
        return sorted(self._topics)

    @property
    def topic_consumers(self) -> list[TopicConsumer]:
        """The consumers of its topics; for readers."""
        return list(self._topics.values())

    @property
    def has_queued(self) -> bool:
        """Whether `receive` returns at once."""
        return bool(self._queue)

    @property
    def subscription(self) -> str:
        """The name of the subscription."""
        return self._options.subscription

    @property
    def is_usable(self) -> bool:
        """Whether it is neither closed nor ended by an error."""
        return self._failed is None and not self._is_closed

    @property
    def is_connected(self) -> bool:
        """Whether all topics are open at their brokers now."""
        return all(each.is_connected for each in self._topics.values())

    @property
    def has_reached_end(self) -> bool:
        """Whether all topics are terminated and delivered to their ends."""
        return bool(self._topics) and all(each.has_reached_end for each in self._topics.values())

    # Receiving

    async def receive(self, timeout_s: float | None = None) -> Message:
        """Returns the next message. Raises OperationTimeout after `timeout_s`, Closed, or the error with
        which the consumer ended.
        """
        self._home.check()
        if not self._queue:
            await self._arrival(timeout_s)
        if self._is_versioned:
            await self._prepare_next()
        return self._take()

    def receive_nowait(self) -> Message | None:
        """Returns the next message that is here already; None if there is none."""
        self._home.check()
        return self._take() if self._queue else None

    async def receive_batch(
        self, max_messages: int = 100, max_bytes: int = 10 * 1_024 * 1_024, timeout_s: float = 0.1
    ) -> list[Message]:
        """Returns messages as soon as there are so many, or so many bytes, or `timeout_s` after the call:
        then those that are here, which may be none. Raises as `receive`.
        """
        self._home.check()
        deadline = self._home.loop.time() + timeout_s
        found: list[Message] = []
        byte_length = 0
        while len(found) < max_messages and byte_length < max_bytes:
            if not self._queue:
                left_s = deadline - self._home.loop.time()
                if left_s <= 0:
                    break
                try:
                    await self._arrival(left_s)
                except OperationTimeout:
                    break
            if self._is_versioned:
                await self._prepare_next()
            message = self._take()
            found.append(message)
            byte_length += len(message.data)
        return found

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields messages until the consumer is closed. Raises the error with which it ended."""
        while True:
            try:
                yield await self.receive()
            except Closed:
                return

    def pause(self) -> None:
        """Asks brokers for no more messages; those in the receiver queue can still be received."""
        for each in self._topics.values():
            each.pause()

    def resume(self) -> None:
        """Asks brokers for messages again."""
        for each in self._topics.values():
            each.resume()

    # Acknowledgements

    async def acknowledge(
        self,
        messages: Message | MessageId | Iterable[Message | MessageId],
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Acknowledges a message, or several. With ack_receipts, and in a transaction, returns once the
        broker has stored it; otherwise at once, and it is sent with the next group.

        Raises TransactionConflict, ConnectionLost, Refused, Closed, or the error with which the consumer
        ended.
        """
        if transaction is not None:
            await self._acknowledge_in(transaction, _each(messages), cumulative=False)
            return
        topics: dict[Receiver, None] = {}
        for message in _each(messages):
            topics[self.acknowledge_nowait(message)] = None
        if self._options.ack_receipts:
            for topic in topics:
                await topic.acknowledged()

    def acknowledge_nowait(self, message: Message | MessageId) -> Receiver:
        """Acknowledges a message with the next group; returns its consumer. Raises Closed, or the error with
        which the consumer ended.
        """
        self._home.check()
        if self._is_closed or self._failed is not None:
            self._check_usable(message)
        if isinstance(message, Message):
            receiver = message.consumer
            receiver.acknowledge(message)
            if self._is_plain:
                return receiver
            if self._interceptors:
                for interceptor in self._interceptors:
                    guarded(interceptor.on_acknowledge, None, message)
            if self._dead_letters is not None:
                self._dead_letters.acknowledged(message)
            return receiver
        topic = self._topic_of(message)
        topic.acknowledge_id(message)
        return topic

    async def acknowledge_cumulative(
        self, message: Message | MessageId, *, transaction: Transaction | None = None
    ) -> None:
        """Acknowledges all messages up to this one, in its topic or partition. Raises ClientError on Shared
        and Key_Shared subscriptions, and as `acknowledge`.
        """
        self._home.check()
        if transaction is not None:
            await self._acknowledge_in(transaction, [message], cumulative=True)
            return
        if self._is_closed or self._failed is not None:
            self._check_usable(message)
        receiver = self._receiver_of(message)
        if isinstance(message, Message):
            receiver.acknowledge_cumulative(message.id, message.entry)
        else:
            receiver.acknowledge_cumulative(message)
        if self._options.ack_receipts:
            await receiver.acknowledged()

    def negative_acknowledge(self, message: Message) -> None:
        """Asks for a message again after the consumer's delay; with a dead letter policy it moves to the dead
        letter topic after its last delivery. On subscriptions with one active consumer all unacknowledged
        messages are delivered again.
        """
        self._home.check()
        message.consumer.negative_acknowledge(message.entry, message.redelivery_count)
        for interceptor in self._interceptors:
            guarded(interceptor.on_negative_acknowledge, None, message)

    def redeliver_unacknowledged(self) -> None:
        """Asks for all unacknowledged messages again now."""
        self._home.check()
        for each in self._topics.values():
            each.redeliver_all()

    async def reconsume_later(
        self, message: Message, delay_s: float, properties: Mapping[str, str] | None = None
    ) -> None:
        """Publishes a message to the retry letter topic, from where this subscription gets it after
        `delay_s`, and acknowledges it. Its last retry goes to the dead letter topic instead.

        Raises ClientError if the consumer was created without retry_letters, and as `Producer.send`.
        """
        self._home.check()
        if self._dead_letters is None or not self._options.retry_letters:
            raise ClientError("reconsume_later needs a consumer with retry_letters=True")
        await self._dead_letters.retry(message, delay_s, properties)
        await self.acknowledge(message)

    # Place in the topics

    async def seek(self, to: MessageId | int) -> None:
        """Moves the subscription to a message, after which it continues (from which, with start_inclusive),
        or to a publish time in milliseconds since 1970.

        A message id of a partitioned topic moves that partition; the earliest and the latest move all.
        Raises Refused, ConnectionLost.
        """
        self._home.check()
        if isinstance(to, int) or to in (MessageId.EARLIEST, MessageId.LATEST):
            await asyncio.gather(*(each.seek(to) for each in self._topics.values()))
        else:
            await self._topic_of(to).seek(to)

    async def last_message_ids(self) -> dict[str, MessageId]:
        """Returns the id of the last message of each topic; entry -1: the topic is empty."""
        self._home.check()
        names = list(self._topics)
        answers = await asyncio.gather(*(self._topics[name].last_message_id() for name in names))
        return {
            name: MessageId.from_data(answer.last_message_id)
            for name, answer in zip(names, answers, strict=True)
        }

    async def unsubscribe(self) -> None:
        """Deletes the subscription, and closes the consumer. Raises Refused, ConnectionLost."""
        self._home.check()
        await asyncio.gather(*(each.unsubscribe() for each in self._topics.values()))
        await self.close()

    async def close(self) -> None:
        """Sends pending acknowledgements and closes the consumer; a durable subscription remains."""
        self._home.check()
        if self._is_closed:
            return
        self._is_closed = True
        self._parts.residents.discard(self)
        for each in self._growing:
            self._parts.growth.forget(each)
        for task in (self._listening, self._watching):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*self._moving, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._topics.values()))
        self._queue.clear()
        if self._dead_letters is not None:
            await self._dead_letters.close()
        self._wake_all()

    async def __aenter__(self) -> Consumer[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # For the client

    async def open(self, topics: Sequence[str], listener: Listener | None) -> None:
        """Opens topics with all their partitions. Raises Refused, ConnectionLost, OperationTimeout."""
        names = [TopicName.parse(topic) for topic in topics]
        self._prepare_dead_letters(names[0])
        try:
            if self._dead_letters is not None and self._options.retry_letters:
                names.append(TopicName.parse(self._dead_letters.retry_topic))
            for name in dict.fromkeys(names):
                await self._open_partitions(name)
        except BaseException:
            await self.close()
            raise
        self._began(listener)

    async def open_found(self, names: Sequence[str], listener: Listener | None) -> None:
        """Opens the topics that match a pattern; `add_topics` adds others later. Raises as `open`."""
        self._is_pattern = True
        self._prepare_dead_letters(TopicName.parse(names[0]) if names else None)
        try:
            await self.add_topics(names)
        except BaseException:
            await self.close()
            raise
        self._began(listener)

    def watch(self, run: Awaitable[None]) -> None:
        """Runs what watches for topics that match the pattern until the consumer is closed."""
        self._watching = asyncio.ensure_future(run)

    async def add_topics(self, names: Sequence[str]) -> None:
        """Opens topics and partitions that are not open yet. Raises as `open`."""
        missing = [name for name in names if name not in self._topics]
        options = self._options
        size = options.queue_size
        if len(missing) + len(self._topics) > 1 and size:
            size = max(min(size, options.queue_size_total // (len(missing) + len(self._topics))), 1)
        added = [
            TopicConsumer(self._parts, name, options, self._schema_of(name), size, self) for name in missing
        ]
        self._topics |= {each.topic: each for each in added}
        try:
            async with asyncio.TaskGroup() as group:
                for each in added:
                    group.create_task(each.open())
        except BaseExceptionGroup as errors:
            for each in added:
                self._topics.pop(each.topic, None)
            await asyncio.gather(*(each.close() for each in added))
            raise errors.exceptions[0] from None
        if self._is_closed:
            await asyncio.gather(*(each.close() for each in added))
        if self._receivers:
            self._request_next()

    async def remove_topics(self, names: Iterable[str]) -> None:
        """Closes topics that were deleted."""
        for name in names:
            topic = self._topics.pop(name, None)
            if topic is not None:
                self.drop(topic)
                await topic.close()

    # For the consumers of its topics

    def on_messages(self, messages: list[Message]) -> None:
        queue = self._queue
        queue.extend(messages)
        for _ in messages:
            if not self._receivers:
                return
            self._wake_one()

    def drop(self, consumer: TopicConsumer) -> int:
        before = len(self._queue)
        if before:
            self._queue = deque(message for message in self._queue if message.consumer is not consumer)
        return before - len(self._queue)

    def on_consumer_failed(self, consumer: TopicConsumer, error: ClientError) -> None:
        if self._is_pattern:
            # One of many topics is gone; it is added again if it returns.
            _log.info("%s: no longer consumed: %s", consumer.topic, error)
            self._topics.pop(consumer.topic, None)
            return
        _log.warning("%s: the consumer ended: %s", consumer.topic, error)
        self._failed = self._failed or error
        self._wake_all()

    def on_redelivery(self, consumer: TopicConsumer, positions: list[Position], *, timed_out: bool) -> None:
        if timed_out:
            for interceptor in self._interceptors:
                guarded(interceptor.on_ack_timeout, None, consumer.topic, len(positions))
        dead = self._dead_letters
        if dead is not None and (moving := dead.take(consumer, positions)):
            moved = {position for message in moving for position in message.entry.ids}
            positions = [position for position in positions if position not in moved]
            task = self._home.loop.create_task(self._move(dead, consumer, moving))
            self._moving.add(task)
            task.add_done_callback(self._moving.discard)
        consumer.redeliver(positions)

    # Inside

    def _began(self, listener: Listener | None) -> None:
        self._parts.residents.add(self)
        if listener is not None:
            self._listening = self._home.loop.create_task(self._listen(listener))

    async def _open_partitions(self, name: TopicName) -> None:
        count = await self._parts.lookup.partition_count(name)
        await self.add_topics(partition_names(name, count))
        if count:

            async def grown(now: int) -> None:
                await self.add_topics(partition_names(name, now))

            self._growing.append((self, name.full))
            self._parts.growth.watch((self, name.full), name, count, grown)

    def _schema_of(self, name: str) -> Schema[T] | None:
        """Returns the schema for a topic or partition."""
        topic = TopicName.parse(name).base.full
        if topic not in self._schemas:
            schema: Any = self._schema
            self._schemas[topic] = schema.for_topic() if self._is_versioned else schema
        return self._schemas[topic]

    def _prepare_dead_letters(self, topic: TopicName | None) -> None:
        policy = self._options.dead_letter
        if policy is not None and topic is not None:
            info = self._schema.info if self._schema is not None else None
            self._dead_letters = DeadLetters(
                self._parts, policy, topic.base.full, self._options.subscription, info
            )

    def _take(self) -> Message:
        message = self._queue.popleft()
        message.consumer.take(message)
        if self._is_plain:
            return message
        if self._dead_letters is not None:
            self._dead_letters.delivered(message)
        if self._interceptors:
            for interceptor in self._interceptors:
                message = guarded(interceptor.before_consume, message, message)
        return message

    async def _prepare_next(self) -> None:
        """Gets what the next message needs to be decoded; it stays in the queue until it has that."""
        while True:
            if not self._queue:
                await self._arrival(None)
            message = self._queue[0]
            await message.consumer.fetch_schema(message)
            if self._queue and self._queue[0] is message:
                return

    async def _arrival(self, timeout_s: float | None) -> None:
        """Waits until the queue has a message. Raises OperationTimeout, Closed, and the consumer's error."""
        if timeout_s is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._arrival(None)
            except TimeoutError:
                raise OperationTimeout(
                    f"no message of the subscription {self.subscription!r} arrived within {timeout_s:g} s"
                ) from None
            return
        while not self._queue:
            if self._failed is not None:
                raise self._failed
            if self._is_closed:
                raise self._closed()
            self._request_next()
            waiting: asyncio.Future[None] = self._home.loop.create_future()
            self._receivers.append(waiting)
            try:
                await waiting
            except asyncio.CancelledError:
                if waiting in self._receivers:
                    self._receivers.remove(waiting)
                elif not waiting.cancelled():
                    self._wake_one()  # The wake-up was for a message that another call may take.
                raise
        if self._receivers:
            self._request_next()

    def _request_next(self) -> None:
        """Without a receiver queue: asks for the message of the next call that waits."""
        if not self._options.queue_size:
            for each in self._topics.values():
                each.request_one()

    def _wake_one(self) -> None:
        while self._receivers:
            waiting = self._receivers.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._receivers:
            self._wake_one()

    def _topic_of(self, message_id: MessageId) -> TopicConsumer:
        """Returns the consumer of an id's topic. Raises ClientError where the id does not say which."""
        if len(self._topics) == 1:
            return next(iter(self._topics.values()))
        found = [each for each in self._topics.values() if each.partition == message_id.partition]
        if len(found) != 1:
            raise ClientError(
                f"{message_id} does not say to which of {len(self._topics)} topics it belongs: give the "
                "message itself, or consume one topic"
            )
        return found[0]

    async def _acknowledge_in(
        self, transaction: Transaction, messages: Iterable[Message | MessageId], *, cumulative: bool
    ) -> None:
        self._home.check()
        subscription = self._options.subscription
        try:
            async with asyncio.TaskGroup() as group:
                for message in messages:
                    receiver = self._receiver_of(message)
                    group.create_task(
                        transaction.acknowledge(receiver, subscription, message, cumulative=cumulative)
                    )
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _check_usable(self, message: Message | MessageId) -> None:
        """Raises Closed, or the error with which the consumer of the message's topic ended: an
        acknowledgement would not be sent.
        """
        if self._is_closed:
            raise self._closed()
        self._receiver_of(message).check()

    def _closed(self) -> Closed:
        return Closed(f"the consumer of the subscription {self.subscription!r} is closed")

    def _receiver_of(self, message: Message | MessageId) -> Receiver:
        return message.consumer if isinstance(message, Message) else self._topic_of(message)

    async def _move(self, dead: DeadLetters, consumer: TopicConsumer, messages: list[Message]) -> None:
        """Publishes and acknowledges dead letters; those that cannot be published are delivered again."""
        for message in messages:
            try:
                await dead.publish(message)
            except ClientError as error:
                _log.warning(
                    "%s, %s: cannot move to the dead letter topic: %s", message.topic, message.id, error
                )
                consumer.redeliver([message.entry.ids[0]])
            else:
                consumer.acknowledge(message)

    async def _listen(self, listener: Listener) -> None:
        async for message in self:
            try:
                result = listener(self, message)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                _log.exception("%s, %s: the listener failed", message.topic, message.id)


def _each(messages: Message | MessageId | Iterable[Message | MessageId]) -> Iterable[Message | MessageId]:
    return [messages] if isinstance(messages, Message | MessageId) else messages
