"""A producer for a topic, partitioned or not: what applications send with."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from magnetar.client.encryption import Encryptor
from magnetar.client.errors import ClientError, Closed
from magnetar.client.interceptors import ProducerInterceptor, guarded
from magnetar.client.lookup import partition_names
from magnetar.client.messages import MessageId, OnSent, Outgoing
from magnetar.client.producer.entries import NOT_REPLICATED
from magnetar.client.producer.options import ProducerOptions
from magnetar.client.producer.topic_producer import TopicProducer
from magnetar.client.routing import HASHES
from magnetar.client.schemas.schema import (
    LATEST,
    PartedSchema,
    Schema,
    VersionedSchema,
)
from magnetar.client.session import ClientParts
from magnetar.client.transactions.transaction import Transaction
from magnetar.common.naming.topic_name import TopicName

T = TypeVar("T")

_NO_PROPERTIES: Mapping[str, str] = {}


class Producer(Generic[T]):
    """Publishes to a topic; made by `Client.create_producer`, and closed by `close` or as a context manager.

    Messages of one partition are stored in the order in which they were sent.
    """

    __slots__ = (
        "_adds_bytes",
        "_current",
        "_hash",
        "_home",
        "_interceptors",
        "_is_closed",
        "_options",
        "_parts",
        "_schema",
        "_separated",
        "_topic",
        "_topics",
    )

    def __init__(
        self,
        parts: ClientParts,
        topic: TopicName,
        options: ProducerOptions,
        schema: Schema[T] | None,
        interceptors: Sequence[ProducerInterceptor],
    ) -> None:
        self._parts = parts
        self._home = parts.home
        self._topic = topic
        self._options = options
        self._schema = schema
        self._interceptors = interceptors
        self._topics: list[TopicProducer] = []
        self._current = 0
        self._hash = HASHES[options.hashing]
        self._is_closed = False
        self._adds_bytes = False
        """Whether bytes go into the batch of the only topic as they are."""
        self._separated: PartedSchema | None = None
        if isinstance(schema, PartedSchema) and schema.is_separated:
            self._separated = schema

    @property
    def topic(self) -> str:
        """The full name of the topic."""
        return self._topic.full

    @property
    def name(self) -> str:
        """The producer's name, which the broker makes up if none was given."""
        return self._topics[0].name

    @property
    def partitions(self) -> int:
        """The number of partitions; 0 for a topic without."""
        return len(self._topics) if self._topic.full != self._topics[0].topic else 0

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that is stored, as far as known; -1 for none."""
        return max(each.last_sequence_id for each in self._topics)

    @property
    def is_connected(self) -> bool:
        """Whether all partitions are open at their brokers now."""
        return all(each.is_connected for each in self._topics)

    async def send(
        self,
        value: T | None,
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        ordering_key: bytes | None = None,
        sequence_id: int | None = None,
        deliver_after_s: float = 0.0,
        deliver_at_ms: int = 0,
        replicate_to: Sequence[str] | None = None,
        transaction: Transaction | None = None,
    ) -> MessageId:
        """Publishes a message and returns its id once it is stored.

        `value` is bytes without a schema; None publishes a message without value, a tombstone for compaction.
        `deliver_after_s` and `deliver_at_ms` (since 1970) delay it on Shared and Key_Shared subscriptions.
        `replicate_to` names clusters; an empty sequence keeps it in this one. Waits while too many messages
        are unconfirmed, unless the producer was created with waits_for_room=False. When this call is
        canceled, the message may be stored or not.

        Raises QueueFull, MessageTooLarge, SendTimeout, SchemaError, Closed, Refused, ConnectionLost.
        """
        self._home.check()
        message = self._outgoing(
            value, key, properties, event_time_ms, ordering_key, deliver_after_s, deliver_at_ms, replicate_to
        )
        topic = self._choose(message.key)
        if transaction is not None:
            message.txn, message.is_plain = await transaction.take_part(topic.topic), False
        if self._options.waits_for_room and not topic.has_room:
            await topic.room()
        stored: asyncio.Future[MessageId] = self._home.loop.create_future()

        def resolve(error: ClientError | None, message_id: MessageId | None) -> None:
            if stored.done():
                return  # The call was canceled.
            if error is not None:
                stored.set_exception(error)
            elif message_id is not None:
                stored.set_result(message_id)

        self._add(topic, message, resolve, sequence_id, transaction)
        return await stored

    def send_nowait(
        self,
        value: T | None,
        callback: OnSent | None = None,
        *,
        key: str | bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        ordering_key: bytes | None = None,
        sequence_id: int | None = None,
        deliver_after_s: float = 0.0,
        deliver_at_ms: int = 0,
        replicate_to: Sequence[str] | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        """Publishes a message without waiting; `callback(error, message_id)` is called once, later.

        Arguments are those of `send`. A transaction has to know the topic already, by `send` or
        `Transaction.add_topic`. Raises QueueFull instead of waiting, and the errors of `send` that are known
        at once.
        """
        self._home.check()
        if (
            type(value) is bytes
            and self._adds_bytes
            and key is None
            and not (properties or event_time_ms or deliver_at_ms or deliver_after_s)
            and ordering_key is None
            and sequence_id is None
            and replicate_to is None
            and transaction is None
            and self._topics[0].add_plain(value, callback)
        ):
            return
        message = self._outgoing(
            value, key, properties, event_time_ms, ordering_key, deliver_after_s, deliver_at_ms, replicate_to
        )
        topic = self._choose(message.key)
        if transaction is not None:
            message.txn, message.is_plain = transaction.part_of(topic.topic), False
        self._add(topic, message, callback, sequence_id, transaction)

    async def room(self, key: str | None = None) -> None:
        """Waits until `send_nowait` takes a message (with that key) without QueueFull. Raises the error with
        which the producer ended, and Closed.
        """
        self._home.check()
        topic = self._choose(key)
        if not topic.has_room:
            await topic.room()

    async def flush(self) -> None:
        """Sends what waits in batches, and returns once every message so far is stored or failed."""
        self._home.check()
        for each in self._topics:
            each.flush_batches()
        for each in self._topics:
            await each.idle()

    async def close(self, *, flush: bool = True) -> None:
        """Closes the producer. `flush`: waits for unconfirmed messages first; otherwise they fail with
        Closed.
        """
        self._home.check()
        if self._is_closed:
            return
        self._is_closed = True
        self._parts.growth.forget(self)
        self._parts.residents.discard(self)
        try:
            if flush:
                await asyncio.gather(*(each.idle() for each in self._topics))
        finally:
            error = Closed(f"{self.topic}: the producer was closed before the message was confirmed")
            await asyncio.gather(*(each.close(error) for each in self._topics))

    async def __aenter__(self) -> Producer[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=error is None)

    async def open(self) -> None:
        """Opens the partitions; for the client. Raises Refused, ConnectionLost, OperationTimeout."""
        count = await self._parts.lookup.partition_count(self._topic)
        if isinstance(self._schema, VersionedSchema):
            await self._parts.lookup.add_schema_version(self._schema, self._topic, LATEST)
        try:
            await self._open_partitions(count)
        except BaseException:
            await self.close(flush=False)
            raise
        self._parts.residents.add(self)
        if count:
            self._parts.growth.watch(self, self._topic, count, self._open_partitions)

    async def _open_partitions(self, count: int) -> None:
        """Opens those of `count` partitions that are not open yet; without any, the topic itself."""
        names = partition_names(self._topic, count)
        keys = self._options.public_keys
        schema = self._schema.info.to_wire() if self._schema is not None and self._schema.info else None
        added = [
            TopicProducer(self._parts, name, self._options, schema, Encryptor(keys) if keys else None)
            for name in names[len(self._topics) :]
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for each in added:
                    group.create_task(each.open())
        except BaseExceptionGroup as errors:
            closed = Closed(f"{self.topic}: not all partitions could be opened")
            await asyncio.gather(*(each.close(closed) for each in added))
            raise errors.exceptions[0] from None
        if self._is_closed:
            await asyncio.gather(*(each.close(Closed(f"{self.topic}: it is closed")) for each in added))
            return
        self._topics += added
        batching = self._options.batching
        self._adds_bytes = (
            len(self._topics) == 1
            and self._schema is None
            and not self._interceptors
            and batching is not None
            and not batching.by_key
        )

    def _outgoing(
        self,
        value: Any,
        key: str | bytes | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int,
        ordering_key: bytes | None,
        deliver_after_s: float,
        deliver_at_ms: int,
        replicate_to: Sequence[str] | None,
    ) -> Outgoing:
        schema = self._schema
        payload: bytes
        is_null, is_null_key = value is None, False
        if schema is None:
            if type(value) is bytes:
                payload = value
            elif value is None:
                payload = b""
            else:
                payload = _bytes_of(value)
        elif value is None:
            payload = b""
        elif self._separated is not None:
            key, given = self._separated.encode_parts(value)
            is_null_key, is_null, payload = key is None, given is None, given or b""
        else:
            payload = schema.encode(value)
        if deliver_after_s:
            deliver_at_ms = int((time.time() + deliver_after_s) * 1_000)
        is_plain = not (
            key is not None
            or properties
            or event_time_ms
            or ordering_key is not None
            or deliver_at_ms
            or replicate_to is not None
            or is_null
            or is_null_key
        )
        version = self._topics[0].schema_version if schema is not None else b""
        if is_plain:
            return Outgoing(payload, None, _NO_PROPERTIES, 0, None, 0, False, False, (), None, version, True)
        is_base64 = isinstance(key, bytes)
        text = base64.b64encode(key).decode() if isinstance(key, bytes) else key
        return Outgoing(
            payload,
            text,
            properties or _NO_PROPERTIES,
            event_time_ms,
            ordering_key,
            deliver_at_ms,
            is_base64,
            is_null,
            () if replicate_to is None else tuple(replicate_to) or NOT_REPLICATED,
            None,
            version,
            False,
            is_null_key,
        )

    def _choose(self, key: str | None) -> TopicProducer:
        topics = self._topics
        count = len(topics)
        if count == 1:
            return topics[0]
        index = self._options.routing.choose(key, count)
        if index is not None:
            if not 0 <= index < count:
                raise ClientError(f"{self.topic}: routing chose partition {index} of {count}")
            return topics[index]
        if key is not None:
            return topics[self._hash(key) % count]
        if self._options.batching is None or topics[self._current % count].between_batches:
            self._current = (self._current + 1) % count
        return topics[self._current % count]

    def _add(
        self,
        topic: TopicProducer,
        message: Outgoing,
        callback: OnSent | None,
        sequence_id: int | None,
        transaction: Transaction | None,
    ) -> None:
        if transaction is not None:
            callback = transaction.tracked(callback)
        if self._interceptors:
            for interceptor in self._interceptors:
                message = guarded(interceptor.before_send, message, topic.topic, message)
            message.is_plain = False
            callback = self._intercepted(topic.topic, message, callback)
        try:
            topic.add(message, callback, sequence_id)
        except ClientError as error:
            for interceptor in self._interceptors:
                guarded(interceptor.on_sent, None, topic.topic, message, None, error)
            if transaction is not None:
                transaction.end_operation(error)
            raise

    def _intercepted(self, topic: str, message: Outgoing, callback: OnSent | None) -> OnSent:
        def done(error: ClientError | None, message_id: MessageId | None) -> None:
            for interceptor in self._interceptors:
                guarded(interceptor.on_sent, None, topic, message, message_id, error)
            if callback is not None:
                callback(error, message_id)

        return done


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ClientError(
        f"a message of type {type(value).__name__} needs a schema: give bytes, or create the producer with a "
        "schema such as String() or Json(...)"
    )
