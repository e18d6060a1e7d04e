"""The client: connections to a cluster, and what is made with them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from magnetar.client.authentication.methods import Authentication
from magnetar.client.compression import check_codec
from magnetar.client.consumer.consumer import Consumer, Listener
from magnetar.client.consumer.dead_letters import DeadLetterPolicy
from magnetar.client.consumer.options import (
    Chunking,
    ConsumerOptions,
    InitialPosition,
    KeySharedPolicy,
    SubscriptionType,
)
from magnetar.client.consumer.redelivery import RedeliveryDelay
from magnetar.client.consumer.topic_list import TopicListWatcher
from magnetar.client.encryption import CryptoFailure, KeyReader
from magnetar.client.errors import ClientError
from magnetar.client.interceptors import ConsumerInterceptor, ProducerInterceptor
from magnetar.client.lookup import TopicPattern
from magnetar.client.messages import MessageId
from magnetar.client.options import ClientOptions, Tls
from magnetar.client.producer.options import COMPRESSIONS, AccessMode, Batching, Compression, ProducerOptions
from magnetar.client.producer.producer import Producer
from magnetar.client.reader import Reader
from magnetar.client.routing import Hashing, RoundRobin, Routing
from magnetar.client.schemas.schema import Schema
from magnetar.client.session import ClientParts
from magnetar.client.table_view import TableView
from magnetar.client.transactions.coordinators import Coordinators
from magnetar.client.transactions.transaction import Transaction
from magnetar.common.naming.topic_name import TopicName

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)  # Without a schema values are bytes.
else:
    from typing import TypeVar

    T = TypeVar("T")

_DEFAULT_DELAY = RedeliveryDelay()
_DEFAULT_BATCHING = Batching()
_ROUND_ROBIN = RoundRobin()


class Client:
    """A client of Magnetar, or of any broker that speaks Pulsar's protocol.

    It belongs to the event loop and the process in which it was created, and has no threads. Producers,
    consumers and readers share its connections, and are closed with it.

        async with Client("pulsar://localhost:6650") as client:
            producer = await client.create_producer("orders")
            message_id = await producer.send(b"hello")
    """

    def __init__(
        self,
        service_url: str,
        *,
        authentication: Authentication | None = None,
        tls: Tls | None = None,
        listener_name: str = "",
        proxy_url: str = "",
        operation_timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        reconnect_timeout_s: float = float("inf"),
        connections_per_broker: int = 1,
        memory_limit_bytes: int = 64 * 1024 * 1024,
        waits_for_service: bool = False,
    ) -> None:
        """Creates a client; connections are opened when they are needed.

        `service_url` is pulsar://host:port, or pulsar+ssl://; several hosts are separated by commas.
        `listener_name` chooses one of the brokers' advertised listeners. `proxy_url` (pulsar+ssl://) is a
        proxy that finds brokers by the name that TLS asks for. `reconnect_timeout_s` bounds how long a
        producer or consumer tries to get back after its connection ended. `memory_limit_bytes` bounds
        unconfirmed messages; 0: no bound. `waits_for_service`: the first connection may take the operation
        timeout, for services that start together.

        Raises ClientError for a URL or certificates that cannot be used, WrongLoop outside a coroutine.
        """
        self._use(
            ClientOptions(
                service_url=service_url,
                authentication=authentication,
                tls=tls or Tls(),
                listener_name=listener_name,
                proxy_url=proxy_url,
                operation_timeout_s=operation_timeout_s,
                connect_timeout_s=connect_timeout_s,
                reconnect_timeout_s=reconnect_timeout_s,
                connections_per_broker=connections_per_broker,
                memory_limit_bytes=memory_limit_bytes,
                waits_for_service=waits_for_service,
            )
        )

    @classmethod
    def with_options(cls, options: ClientOptions) -> Client:
        """Creates a client from options that were put together before. Raises as the constructor."""
        client = cls.__new__(cls)
        client._use(options)
        return client

    def _use(self, options: ClientOptions) -> None:
        self._parts = ClientParts(options)
        self._coordinators = Coordinators(self._parts)

    @property
    def parts(self) -> ClientParts:
        """The parts that producers and consumers of another kind build on, such as those of Spark's sink."""
        return self._parts

    @property
    def coordinators(self) -> Coordinators:
        """The transaction coordinators, for programs that end transactions of others."""
        return self._coordinators

    async def create_producer(
        self,
        topic: str,
        *,
        schema: Schema[T] | None = None,
        name: str = "",
        initial_sequence_id: int | None = None,
        send_timeout_s: float = 30.0,
        batching: Batching | None = _DEFAULT_BATCHING,
        chunking: bool = False,
        chunk_bytes_max: int = 0,
        compression: Compression = "none",
        routing: Routing = _ROUND_ROBIN,
        hashing: Hashing = "java_string",
        access_mode: AccessMode = "shared",
        public_keys: Mapping[str, bytes] | None = None,
        max_pending_messages: int = 10_000,
        waits_for_room: bool = True,
        properties: Mapping[str, str] | None = None,
        initial_subscription: str = "",
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> Producer[T]:
        """Opens a producer of a topic, partitioned or not.

        Without `schema` messages are bytes. `name`: unique in the topic; with deduplication, sequence ids go
        on where those of the name ended. `send_timeout_s` 0: messages wait for receipts without end.
        `batching` None: an entry for each message. `chunking`: messages larger than the broker takes are cut
        into chunks. `public_keys` (PEM by name) encrypt messages end to end. `max_pending_messages` counts
        for each partition; `waits_for_room`: `send` waits when there are so many, otherwise raises QueueFull.
        `initial_subscription` is created with the topic.

        Raises Refused (ProducerBusy, TopicNotFound, IncompatibleSchema ...), ConnectionLost,
        OperationTimeout.
        """
        self._parts.home.check()
        check_codec(COMPRESSIONS[compression])
        options = ProducerOptions(
            name=name,
            initial_sequence_id=initial_sequence_id,
            send_timeout_s=send_timeout_s,
            batching=batching,
            chunking=chunking,
            chunk_bytes_max=chunk_bytes_max,
            compression=compression,
            routing=routing,
            hashing=hashing,
            access_mode=access_mode,
            public_keys=public_keys or {},
            max_pending_messages=max_pending_messages,
            waits_for_room=waits_for_room,
            properties=properties or {},
            initial_subscription=initial_subscription,
        )
        producer = Producer(self._parts, TopicName.parse(topic), options, schema, interceptors)
        await producer.open()
        return producer

    async def subscribe(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        subscription: str,
        *,
        type: SubscriptionType = "exclusive",
        schema: Schema[T] | None = None,
        name: str = "",
        initial_position: InitialPosition = "latest",
        durable: bool = True,
        start: MessageId | None = None,
        start_inclusive: bool = False,
        queue_size: int = 1_000,
        queue_size_total: int = 50_000,
        ack_group_s: float = 0.1,
        ack_group_max: int = 1_000,
        ack_receipts: bool = False,
        batch_index_ack: bool = False,
        negative_ack_delay: RedeliveryDelay = _DEFAULT_DELAY,
        ack_timeout_s: float = 0.0,
        dead_letter: DeadLetterPolicy | None = None,
        retry_letters: bool = False,
        priority_level: int = 0,
        key_shared: KeySharedPolicy | None = None,
        properties: Mapping[str, str] | None = None,
        subscription_properties: Mapping[str, str] | None = None,
        read_compacted: bool = False,
        replicate_subscription: bool = False,
        read_key: KeyReader | None = None,
        crypto_failure: CryptoFailure = "fail",
        chunking: Chunking | None = None,
        pattern_update_s: float = 60.0,
        listener: Listener | None = None,
        on_active_change: Callable[[str, bool], None] | None = None,
        on_end_of_topic: Callable[[str], None] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
    ) -> Consumer[T]:
        """Opens a consumer of a topic, of several, or of all that match a pattern (re.compile) of the form
        tenant/namespace/expression, whose topics are added as they appear.

        `queue_size` messages are fetched ahead for each topic; 0: one for each `receive`. Acknowledgements
        are sent in groups of `ack_group_max` or after `ack_group_s`; with `ack_receipts` `acknowledge` waits
        until the broker has stored them. `batch_index_ack`: parts of batches are acknowledged at the broker.
        `ack_timeout_s` (at least 1; 0: none): messages not acknowledged in time are delivered again.
        `dead_letter`: where messages go after too many deliveries; `retry_letters`: `reconsume_later` can be
        used. `start` is for subscriptions that are not durable. `read_key` gives private keys for encrypted
        messages. `listener` is called for each message, instead of `receive`. `on_active_change(topic,
        is_active)` tells of failover.

        Raises Refused (ConsumerBusy, TopicNotFound, IncompatibleSchema ...), ConnectionLost,
        OperationTimeout.
        """
        self._parts.home.check()
        options = ConsumerOptions(
            subscription=subscription,
            type=type,
            name=name,
            initial_position=initial_position,
            durable=durable,
            start=start,
            start_inclusive=start_inclusive,
            queue_size=queue_size,
            queue_size_total=queue_size_total,
            ack_group_s=ack_group_s,
            ack_group_max=ack_group_max,
            ack_receipts=ack_receipts,
            batch_index_ack=batch_index_ack,
            negative_ack_delay=negative_ack_delay,
            ack_timeout_s=ack_timeout_s,
            dead_letter=dead_letter or (DeadLetterPolicy(redeliveries_max=16) if retry_letters else None),
            retry_letters=retry_letters,
            priority_level=priority_level,
            key_shared=key_shared or KeySharedPolicy(),
            properties=properties or {},
            subscription_properties=subscription_properties or {},
            read_compacted=read_compacted,
            replicate_subscription=replicate_subscription,
            read_key=read_key,
            crypto_failure=crypto_failure,
            chunking=chunking or Chunking(),
            pattern_update_s=pattern_update_s,
            on_active_change=on_active_change,
            on_end_of_topic=on_end_of_topic,
        )
        consumer = Consumer(self._parts, options, schema, interceptors)
        if isinstance(topics, re.Pattern):
            pattern = TopicPattern.parse(topics)
            found = await self._parts.lookup.topics_matching(pattern)
            await consumer.open_found(found, listener)
            watcher = TopicListWatcher(
                self._parts, pattern, pattern_update_s, consumer.add_topics, consumer.remove_topics
            )
            consumer.watch(watcher.run())
        else:
            names = [topics] if isinstance(topics, str) else list(topics)
            if not names:
                raise ClientError("subscribe needs at least one topic, or a pattern")
            await consumer.open(names, listener)
        return consumer

    async def create_reader(
        self,
        topic: str,
        start: MessageId = MessageId.LATEST,
        *,
        start_inclusive: bool = False,
        start_rollback_s: int = 0,
        schema: Schema[T] | None = None,
        name: str = "",
        queue_size: int = 1_000,
        read_compacted: bool = False,
        subscription: str = "",
        read_key: KeyReader | None = None,
        crypto_failure: CryptoFailure = "fail",
        chunking: Chunking | None = None,
    ) -> Reader[T]:
        """Opens a reader of a topic, which begins after `start` (with it, if `start_inclusive`), or
        `start_rollback_s` seconds before now.

        `start` of a partitioned topic is the earliest or latest position. Raises as `subscribe`.
        """
        self._parts.home.check()
        options = ConsumerOptions(
            subscription=subscription or f"reader-{secrets.token_hex(5)}",
            durable=False,
            start=start,
            start_inclusive=start_inclusive,
            start_rollback_s=start_rollback_s,
            name=name,
            queue_size=queue_size,
            read_compacted=read_compacted,
            read_key=read_key,
            crypto_failure=crypto_failure,
            chunking=chunking or Chunking(),
        )
        consumer = Consumer(self._parts, options, schema)
        await consumer.open([topic], None)
        return Reader(consumer)

    async def create_table_view(
        self, topic: str, *, schema: Schema[T] | None = None, read_key: KeyReader | None = None
    ) -> TableView[T]:
        """Opens a view of the newest value of each key of a topic; returns once it has all that is stored
        now.

        Raises as `subscribe`.
        """
        compacted = TopicName.parse(topic).persistent
        reader = await self.create_reader(
            topic, MessageId.EARLIEST, schema=schema, read_compacted=compacted, read_key=read_key
        )
        view = TableView(reader)
        try:
            await view.open()
        except BaseException:
            await view.close()
            raise
        return view

    def transaction(self, timeout_s: float = 60.0) -> NewTransaction:
        """Begins a transaction with `async with` or `await`; it is aborted after `timeout_s` unless it ended.

        Raises Refused where the cluster has no transactions, ConnectionLost.
        """
        self._parts.home.check()
        return NewTransaction(self._coordinators, timeout_s)

    async def partitions(self, topic: str) -> list[str]:
        """Returns the full names of a topic's partitions, or of the topic itself. Raises Refused,
        ConnectionLost.
        """
        self._parts.home.check()
        return await self._parts.lookup.partitions(TopicName.parse(topic))

    async def topics(self, pattern: str | re.Pattern[str]) -> list[str]:
        """Returns the topics that match a pattern of the form tenant/namespace/expression, with partitions
        listed one by one. Raises Refused, ConnectionLost.
        """
        self._parts.home.check()
        return await self._parts.lookup.topics_matching(TopicPattern.parse(pattern))

    async def close(self, *, flush: bool = True) -> None:
        """Closes producers, consumers, readers and connections. `flush`: producers wait for their unconfirmed
        messages first; otherwise these fail with Closed.
        """
        self._parts.home.check()
        closing = [
            each.close(flush=flush) if isinstance(each, Producer) else each.close()
            for each in list(self._parts.residents)
        ]
        await asyncio.gather(*closing, return_exceptions=True)
        await self._parts.growth.close()
        await self._parts.pool.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(flush=error is None)


class NewTransaction:
    """A transaction to begin: `await` it, or use it with `async with`, which commits or aborts at the end."""

    def __init__(self, coordinators: Coordinators, timeout_s: float) -> None:
        self._coordinators = coordinators
        self._timeout_s = timeout_s
        self._begun: Transaction | None = None

    def __await__(self) -> Any:
        return self._begin().__await__()

    async def __aenter__(self) -> Transaction:
        self._begun = await self._begin()
        return self._begun

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._begun is not None
        await self._begun.__aexit__(kind, error, trace)

    async def _begin(self) -> Transaction:
        return Transaction(self._coordinators, await self._coordinators.begin(self._timeout_s))
