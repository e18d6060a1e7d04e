"""A consumer of one topic or partition: permits, acknowledgements, redelivery, and its place in the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from magnetar.client.connection.connection import Connection
from magnetar.client.connection.frames import Delivery, Run
from magnetar.client.consumer.acknowledgements import Acknowledgements, Position, ack_set_of
from magnetar.client.consumer.chunks import ChunkAssembler
from magnetar.client.consumer.decoding import EntryDecoder, counted_messages
from magnetar.client.consumer.options import ConsumerOptions
from magnetar.client.consumer.redelivery import AckTimeouts, NegativeAcknowledgements
from magnetar.client.consumer.subscribe import start_of, subscribe_command
from magnetar.client.encryption import Decryptor
from magnetar.client.errors import ClientError, OperationTimeout, OwnerUnreachable
from magnetar.client.messages import EntryLeft, Message, MessageId
from magnetar.client.schemas.schema import PartedSchema, Schema, VersionedSchema
from magnetar.client.session import ClientParts, TopicSession
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    MessageIdData,
)

_log = logging.getLogger(__name__)

REDELIVERED_MAX: Final = 1_000
"""Entries named in one request for redelivery."""


class MessageSink(Protocol):
    """The receiver of the messages of a topic's consumer."""

    def on_messages(self, messages: list[Message]) -> None:
        """Takes messages in their order."""

    def drop(self, consumer: TopicConsumer) -> int:
        """Removes the messages of a consumer that the application has not taken; returns their number."""

    def on_consumer_failed(self, consumer: TopicConsumer, error: ClientError) -> None:
        """The consumer is lost for good."""

    def on_redelivery(self, consumer: TopicConsumer, positions: list[Position], *, timed_out: bool) -> None:
        """Entries are to be delivered again: negatively acknowledged, or not acknowledged in time."""


class TopicConsumer:
    """Created by `Consumer`, on whose event loop it runs."""

    __slots__ = (
        "_ack_timer",
        "_acks",
        "_asked",
        "_chunks",
        "_decoder",
        "_entries_by_id",
        "_epoch",
        "_has_positions",
        "_id",
        "_is_shared",
        "_keeps_place",
        "_nacks",
        "_newest",
        "_options",
        "_owed",
        "_parted_schema",
        "_parts",
        "_paused",
        "_queue_size",
        "_receipt",
        "_receipts",
        "_redelivery_timer",
        "_refill_at",
        "_schema",
        "_seeks",
        "_session",
        "_sink",
        "_taken",
        "_timeouts",
        "has_reached_end",
        "last_taken",
        "partition",
        "start",
        "start_inclusive",
        "topic",
    )

    def __init__(
        self,
        parts: ClientParts,
        topic: str,
        options: ConsumerOptions,
        schema: Schema[Any] | None,
        queue_size: int,
        sink: MessageSink,
    ) -> None:
        self.topic = topic
        name = TopicName.parse(topic)
        self.partition = name.partition_index
        self._has_positions = name.persistent
        """Whether ids tell messages apart: all of a non-persistent topic have the same one."""
        self.last_taken: MessageId | None = None
        """The last message that the application took; only known where it decides where to begin again."""
        self.has_reached_end = False
        """Whether the topic is terminated and all its messages were delivered."""
        self._parts = parts
        self._options = options
        self._schema = schema
        self._parted_schema = schema if isinstance(schema, PartedSchema) else None
        self._queue_size = queue_size
        self._refill_at: float = max((queue_size + 1) // 2, 1) if queue_size else float("inf")
        self._keeps_place = not options.durable
        self._sink = sink
        self._id = parts.next_id()
        self._session = TopicSession(parts, topic, self)
        self._is_shared = options.type in ("shared", "key_shared")
        self._acks = Acknowledgements(
            shared=self._is_shared,
            by_batch_index=options.batch_index_ack,
            group_max=options.ack_group_max if options.ack_group_s > 0 else 1,
        )
        self._ack_timer: asyncio.TimerHandle | None = None
        self._receipt: asyncio.Task[None] | None = None
        """Sends with receipts what is pending, at the next turn of the loop."""
        self._receipts: set[asyncio.Task[None]] = set()
        self._nacks = NegativeAcknowledgements(options.negative_ack_delay)
        self._timeouts = AckTimeouts(options.ack_timeout_s) if options.ack_timeout_s else None
        self._redelivery_timer: asyncio.TimerHandle | None = None
        self._chunks = ChunkAssembler(options.chunking.messages_max, options.chunking.expire_s)
        decryptor = None if options.read_key is None else Decryptor(options.read_key)
        self._decoder = EntryDecoder(
            self, self._chunks, decryptor, options.crypto_failure, parts.home.loop.time
        )
        self._entries_by_id: dict[Position, EntryLeft] = {}
        self._epoch = 0
        self._newest: Position = (-1, -1)
        """The last entry that was ever delivered: what follows is delivered for the first time."""
        self._taken = 0
        """Messages that left the receiver queue since the last permits."""
        self._asked = False
        """Whether the broker has the permit of a consumer without a receiver queue."""
        self._seeks = 0
        """Seeks that have no answer yet."""
        self._owed = 0
        """Permits that a batch took beyond that one: the broker sends nothing before it has them."""
        self._paused = False
        self.start = options.start
        """Where it began, or was moved to; None: where the subscription is."""
        self.start_inclusive = options.start_inclusive
        """Whether the message at the start is delivered, too."""

    @property
    def is_connected(self) -> bool:
        """Whether it is open at the owner of the topic now."""
        return self._session.connection is not None

    async def open(self) -> None:
        """Opens it. Raises Refused, ConnectionLost, OperationTimeout."""
        await self._session.open()

    def decode(self, message: Message) -> Any:
        """Returns the value of a message by the schema; its bytes without one. Raises SchemaError."""
        schema, parted = self._schema, self._parted_schema
        if parted is not None:
            data = None if message.is_null else message.data
            return parted.decode_parts(message.key_bytes, data, message.schema_version)
        if message.is_null:
            return None
        if schema is None:
            return message.data
        return schema.decode(message.data, message.schema_version)

    async def fetch_schema(self, message: Message) -> None:
        """Gives the schema the definition with which a message was written, once for each version. Raises
        Refused, ConnectionLost, SchemaError.
        """
        if isinstance(self._schema, VersionedSchema):
            topic = TopicName.parse(self.topic)
            await self._parts.lookup.add_schema_version(self._schema, topic, message.schema_version)

    def take(self, message: Message) -> None:
        """Records that the application takes a message: permits, and the time to acknowledge it."""
        if self._keeps_place:
            self.last_taken = message.id
        if self._timeouts is not None:
            self._timeouts.add(message.entry.ids[0], self._now())
            self._schedule_redelivery()
        self._taken += 1
        if self._taken >= self._refill_at:
            self.used(0)

    def used(self, messages: int) -> None:
        """Grants permits for messages that left the receiver queue, in groups of half of its size."""
        self._taken += messages
        if self._taken >= self._refill_at and not self._paused:
            connection = self._session.connection
            if connection is not None:
                self._grant(connection, self._taken)
                self._taken = 0

    def request_one(self) -> None:
        """Grants a permit for a consumer without a receiver queue, which asks for each message. The permit
        lasts until a message arrives, also when the call that waits for it is over before.
        """
        if self._asked:
            return
        self._asked = True
        if self._session.connection is not None:
            self._grant(self._session.connection, 1 + self._owed)
            self._owed = 0

    def pause(self) -> None:
        """Grants no more permits; what is on its way still arrives."""
        self._paused = True

    def resume(self) -> None:
        """Grants permits again."""
        self._paused = False
        self.used(0)

    # Acknowledgements

    def check(self) -> None:
        """Raises the error with which it ended, or Closed."""
        self._session.check()

    def acknowledge(self, message: Message) -> None:
        """Acknowledges a message with the next group."""
        self._acknowledge(message.batch_index, message.entry)

    def acknowledge_id(self, message_id: MessageId) -> None:
        """Acknowledges by id: a whole entry, or one message of a batch whose size the id knows. Messages of
        one batch are acknowledged all by id, or all as messages.
        """
        position = message_id.position
        entry = self._entries_by_id.get(position) or _entry_of(message_id)
        if entry.batch_size:
            self._entries_by_id[position] = entry
        self._acknowledge(message_id.batch_index, entry)
        if entry.batch_size and not entry.unacked:
            del self._entries_by_id[position]

    def _acknowledge(self, batch_index: int, entry: EntryLeft) -> None:
        if self._acks.individual(batch_index, entry):
            self._send_acks()
        elif self._ack_timer is None:
            self._schedule_acks()
        if (self._timeouts is not None or self._nacks) and not entry.unacked:
            self.discard_redelivery(entry.ids[0])  # As a whole: others of its batch may have to come again.

    def acknowledge_cumulative(self, message_id: MessageId, entry: EntryLeft | None = None) -> None:
        """Acknowledges all messages up to one. Raises ClientError on Shared and Key_Shared subscriptions."""
        entry = entry or _entry_of(message_id)
        if self._acks.cumulative(message_id.batch_index, entry):
            self._send_acks()
        else:
            self._schedule_acks()
        if self._timeouts is not None:
            self._timeouts.discard_through(message_id.position)

    async def acknowledged(self) -> None:
        """Sends what is pending and waits until the broker has stored it. Raises ConnectionLost, Refused."""
        await asyncio.shield(self._storing())

    async def acknowledge_in(self, txn: TxnId, message: Message | MessageId, *, cumulative: bool) -> None:
        """Acknowledges in a transaction; returns once the broker holds it. Raises TransactionConflict,
        Refused, ConnectionLost.

        While the topic moves it is retried until the operation timeout, since after an error the transaction
        can only be aborted. One whose connection ends before its answer is not: it may be stored, and Apache
        Pulsar refuses a repetition as a conflict.
        """
        message_id = message.id if isinstance(message, Message) else message
        entry = message.entry if isinstance(message, Message) else _entry_of(message)
        ids = entry.ids[-1:] if cumulative else entry.ids
        data = [MessageIdData(ledgerId=ledger, entryId=entry_id) for ledger, entry_id in ids]
        if entry.batch_size:
            data[0].ack_set.extend(
                ack_set_of(message_id.batch_index, entry.batch_size, cumulative=cumulative)
            )
            data[0].batch_size = entry.batch_size
        command = CommandAck(
            consumer_id=self._id,
            ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
            message_id=data,
            txnid_most_bits=txn.most,
            txnid_least_bits=txn.least,
        )
        await self._parts.lookup.patiently(lambda: self._request(BaseCommand.ACK, ack=command))
        if not entry.batch_size:
            self.discard_redelivery(entry.ids[0])

    def negative_acknowledge(self, entry: EntryLeft, redelivery_count: int) -> None:
        """Asks for an entry again after the delay of the consumer."""
        if self._timeouts is not None:
            self._timeouts.discard(entry.ids[0])
        self._nacks.add(entry.ids, redelivery_count, self._now())
        self._schedule_redelivery()

    def discard_redelivery(self, position: Position) -> None:
        """Forgets to ask for an entry again, which is acknowledged."""
        if self._timeouts is not None:
            self._timeouts.discard(position)
        if self._nacks:
            self._nacks.discard(position)

    def redeliver(self, positions: Sequence[Position]) -> None:
        """Asks for entries again: with one active consumer, for all that are unacknowledged."""
        connection = self._session.connection
        if connection is None or not positions:
            return  # A new connection has everything delivered again anyway.
        if not self._is_shared:
            self.redeliver_all()
            return
        self._send_acks()  # What is acknowledged is not delivered again.
        for start in range(0, len(positions), REDELIVERED_MAX):
            command = CommandRedeliverUnacknowledgedMessages(consumer_id=self._id)
            for ledger, entry in positions[start : start + REDELIVERED_MAX]:
                command.message_ids.add(ledgerId=ledger, entryId=entry)
            self._write_redeliver(connection, command)

    def redeliver_all(self) -> None:
        """Asks for all unacknowledged messages again; those that are not taken yet are dropped here."""
        connection = self._session.connection
        if connection is None:
            return
        self._send_acks()  # What is acknowledged is not delivered again.
        command = CommandRedeliverUnacknowledgedMessages(consumer_id=self._id)
        if not self._is_shared:
            self._epoch += 1
            command.consumer_epoch = self._epoch
        dropped = self._forget_deliveries()
        self._write_redeliver(connection, command)
        self.used(dropped)

    # Place in the topic

    async def seek(self, to: MessageId | int) -> None:
        """Moves the subscription to a message, or to a time in milliseconds. Raises Refused,
        ConnectionLost.
        """
        command = CommandSeek(consumer_id=self._id, request_id=0)
        if isinstance(to, int):
            command.message_publish_time = to
        else:
            at = to.first_chunk if to.first_chunk is not None and self._options.start_inclusive else to
            command.message_id.CopyFrom(at.to_data())

        async def ask() -> int:
            opened = self._session.opened
            await self._request(BaseCommand.SEEK, seek=command)
            return opened

        before = self.start, self.start_inclusive, self.last_taken
        self.start = to if isinstance(to, MessageId) else None
        self.start_inclusive = self._options.start_inclusive
        self.last_taken = None
        self._acks.reset()
        self._seeks += 1
        try:
            opened = await self._parts.lookup.patiently(ask)
        except BaseException:
            self.start, self.start_inclusive, self.last_taken = before
            raise
        finally:
            self._seeks -= 1
        self.has_reached_end = False
        if self._session.opened == opened:
            # Otherwise it was opened again before the answer: what is here came after the seek.
            self.used(self._forget_deliveries())
            self._acks.reset()

    async def last_message_id(self) -> CommandGetLastMessageIdResponse:
        """Asks for the id of the topic's last message. Raises Refused, ConnectionLost."""

        async def ask() -> BaseCommand:
            command = CommandGetLastMessageId(consumer_id=self._id, request_id=0)
            return await self._request(BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=command)

        return (await self._parts.lookup.patiently(ask)).getLastMessageIdResponse

    async def unsubscribe(self) -> None:
        """Deletes the subscription on this topic. Raises Refused, ConnectionLost."""
        command = CommandUnsubscribe(consumer_id=self._id, request_id=0)
        await self._parts.lookup.patiently(
            lambda: self._request(BaseCommand.UNSUBSCRIBE, unsubscribe=command)
        )

    async def close(self) -> None:
        """Sends pending acknowledgements and closes it; a durable subscription remains."""
        for timer in (self._ack_timer, self._redelivery_timer):
            if timer is not None:
                timer.cancel()
        await self._session.close()
        await asyncio.gather(*self._receipts, return_exceptions=True)
        connection = self._session.take_connection()
        if connection is None:
            return
        timeout_s = self._parts.options.operation_timeout_s
        try:
            commands = self._acks.commands(self._id)
            for ack in commands[:-1]:
                connection.write(encode_command(BaseCommand(type=BaseCommand.ACK, ack=ack)))
            if commands:  # The answer to the last one says that all are stored.
                last = BaseCommand(type=BaseCommand.ACK, ack=commands[-1])
                await connection.request(last, self.topic, timeout_s)
            await connection.request(self._close_command(), self.topic, timeout_s)
        except ClientError as error:
            _log.debug("%s: closing the consumer: %s", self.topic, error)  # It ends with its connection.
        finally:
            self.detach(connection)

    # For the connection

    def on_message(self, delivery: Delivery) -> None:
        if -1 < delivery.epoch < self._epoch:
            # It was on its way when everything was asked for again.
            self._arrived([], counted_messages(delivery))
        else:
            self._arrived(*self._decoder.messages(delivery))

    def on_run(self, run: Run) -> None:
        first, number = (run.ledger_id, run.first_entry_id), 0
        if (
            self.start is None
            and run.epoch in (-1, self._epoch)
            and self._newest < first
            and not self._acks.is_acknowledged(first)
        ):
            found = self._decoder.plain_messages(run)
            number = len(found)
            if found:
                self._newest = found[-1].entry.ids[0]
                self._asked = False
                self._sink.on_messages(found)
        for delivery in run.deliveries(number):
            self.on_message(delivery)

    def _arrived(self, found: list[Message], counted: int) -> None:
        """Hands on the messages of an entry, for which the broker counted so many."""
        is_asked, self._asked = self._asked, False
        if self._chunks.dropped or self._chunks.repeated:
            self._drop_chunks()
        if found and self._has_positions:
            position = found[0].entry.ids[-1]
            self._newest = max(self._newest, position)
            if self._acks.is_acknowledged(position):
                found = []
            elif self.start is not None:
                found = self._after_start(found)
        if found and found[0].encrypted is not None and self._options.crypto_failure == "discard":
            self.acknowledge(found[0])
            found = []
        if not self._queue_size:
            self._owed += counted - is_asked
        elif len(found) != counted:
            self.used(counted - len(found))
        if found:
            self._sink.on_messages(found)
        elif is_asked:
            self.request_one()  # What was asked for is still to come.

    def on_active_change(self, is_active: bool) -> None:
        if self._options.on_active_change is not None:
            self._options.on_active_change(self.topic, is_active)

    def on_end_of_topic(self) -> None:
        self.has_reached_end = True
        if self._options.on_end_of_topic is not None:
            self._options.on_end_of_topic(self.topic)

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        self._session.lost(reason, assigned_url)

    # For the session

    async def attach(self, connection: Connection) -> None:
        self._forget_deliveries()
        self._taken = self._owed = 0
        connection.consumers[self._id] = self
        subscribe = self._subscribe(connection.protocol_version)
        command = BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)
        try:
            await connection.request(command, self.topic, self._parts.options.operation_timeout_s)
        except (OperationTimeout, asyncio.CancelledError):
            connection.write(encode_command(self._close_command()))  # The broker may open it yet.
            raise
        if self._seeks:
            self._acks.reset()  # They are of deliveries before the seek, for which the broker closed it.
        self._send_acks_on(connection)  # Before the permits, so that what they name does not come again.
        if self._asked:
            self._grant(connection, 1)
        elif self._paused:
            self._taken = self._queue_size
        elif self._queue_size:
            self._grant(connection, self._queue_size)

    def detach(self, connection: Connection) -> None:
        connection.consumers.pop(self._id, None)

    def on_failed(self, error: ClientError) -> None:
        self._sink.on_consumer_failed(self, error)

    def _close_command(self) -> BaseCommand:
        close = CommandCloseConsumer(consumer_id=self._id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)

    def _subscribe(self, protocol_version: int) -> CommandSubscribe:
        options = self._options
        info = self._schema.info if self._schema is not None else None
        command = subscribe_command(self.topic, self._id, self._epoch, options, info, protocol_version)
        if not options.durable:
            if self.last_taken is not None:
                self.start, self.start_inclusive = self.last_taken, False
            elif options.start_rollback_s:
                command.start_message_rollback_duration_sec = options.start_rollback_s
            if self.start is None and options.initial_position == "earliest":
                self.start = MessageId.EARLIEST
            start = start_of(self.start or MessageId.LATEST, inclusive=self.start_inclusive)
            command.start_message_id.CopyFrom(start)
        return command

    def _after_start(self, found: list[Message]) -> list[Message]:
        """Drops the messages of the first entry that come before the start; on a durable subscription they
        are acknowledged, since they would keep the backlog.
        """
        start = self.start
        assert start is not None
        entry = found[0].entry
        if start.position not in (entry.ids[0], entry.ids[-1]):
            return found
        least = start.batch_index + (0 if self.start_inclusive or start.batch_index < 0 else 1)
        if entry.batch_size:
            left = [message for message in found if message.batch_index >= least]
        else:
            left = found if self.start_inclusive else []
        if not self._keeps_place:
            for message in found[: len(found) - len(left)]:
                self.acknowledge(message)
        return left

    def _drop_chunks(self) -> None:
        repeated, self._chunks.repeated = self._chunks.repeated, []
        for position in repeated:
            self._acknowledge(-1, EntryLeft([position], 0))
        dropped, self._chunks.dropped = self._chunks.dropped, []
        for position in dropped:
            entry = EntryLeft([position], 0)
            if self._options.chunking.ack_dropped:
                self._acknowledge(-1, entry)
            elif self._is_shared:
                self.negative_acknowledge(entry, 0)

    def _forget_deliveries(self) -> int:
        """Drops what is delivered and not taken; returns the number of messages."""
        self._chunks.clear()
        self._nacks.clear()
        self._entries_by_id.clear()
        if self._timeouts is not None:
            self._timeouts.clear()
        return self._sink.drop(self)

    def _grant(self, connection: Connection, permits: int) -> None:
        flow = CommandFlow(consumer_id=self._id, messagePermits=permits)
        connection.write(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))

    def _schedule_acks(self) -> None:
        if self._ack_timer is None and self._acks.is_pending:
            loop = self._parts.home.loop
            self._ack_timer = loop.call_later(self._options.ack_group_s, self._send_acks)

    def _send_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self._session.connection is None:
            return  # They are sent as soon as there is one.
        if self._options.ack_receipts:
            self._storing()
        else:
            self._send_acks_on(self._session.connection)

    def _send_acks_on(self, connection: Connection) -> None:
        for ack in self._acks.commands(self._id):
            connection.write(encode_command(BaseCommand(type=BaseCommand.ACK, ack=ack)))

    def _storing(self) -> asyncio.Task[None]:
        """Returns the task that sends what is pending by the end of this turn of the loop, and waits for the
        receipts: those of the same turn go together.
        """
        if self._receipt is None:
            self._receipt = task = self._parts.home.loop.create_task(self._stored_acks())
            self._receipts.add(task)
            task.add_done_callback(self._receipts.discard)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._receipt

    async def _stored_acks(self) -> None:
        self._receipt = None  # What is acknowledged from now on is not among them.
        try:
            connection = self._connected()
            commands = self._acks.commands(self._id)
            timeout_s = self._parts.options.operation_timeout_s
            async with asyncio.TaskGroup() as group:
                for ack in commands:
                    command = BaseCommand(type=BaseCommand.ACK, ack=ack)
                    group.create_task(connection.request(command, self.topic, timeout_s))
        except BaseExceptionGroup as errors:
            self._acks.forget_cumulative()
            raise errors.exceptions[0] from None

    def _schedule_redelivery(self) -> None:
        due = self._nacks.due_at
        if self._timeouts is not None and (expiry := self._timeouts.due_at) is not None:
            due = expiry if due is None else min(due, expiry)
        timer = self._redelivery_timer
        if due is None or (timer is not None and timer.when() <= due):
            return
        if timer is not None:
            timer.cancel()
        self._redelivery_timer = self._parts.home.loop.call_at(due, self._redeliver_due)

    def _redeliver_due(self) -> None:
        self._redelivery_timer = None
        now = self._now()
        nacked = self._nacks.take_due(now)
        expired = self._timeouts.take_due(now) if self._timeouts is not None else []
        if nacked:
            self._sink.on_redelivery(self, nacked, timed_out=False)
        if expired:
            self._sink.on_redelivery(self, expired, timed_out=True)
        self._schedule_redelivery()

    def _write_redeliver(
        self, connection: Connection, command: CommandRedeliverUnacknowledgedMessages
    ) -> None:
        whole = BaseCommand(
            type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command
        )
        connection.write(encode_command(whole))

    def _connected(self) -> Connection:
        """Returns the connection. Raises OwnerUnreachable while there is none, or the error with which it
        ended.
        """
        self._session.check()
        connection = self._session.connection
        if connection is None:
            raise OwnerUnreachable(f"{self.topic}: the consumer is connecting again")
        return connection

    async def _request(self, kind: BaseCommand.Type.ValueType, **command: Any) -> BaseCommand:
        whole: Callable[..., BaseCommand] = BaseCommand
        timeout_s = self._parts.options.operation_timeout_s
        return await self._connected().request(whole(type=kind, **command), self.topic, timeout_s)

    def _now(self) -> float:
        return self._parts.home.loop.time()


def _entry_of(message_id: MessageId) -> EntryLeft:
    """Returns the entry of an id as if nothing of it was acknowledged."""
    ids = [message_id.position]
    if message_id.first_chunk is not None:
        ids.insert(0, message_id.first_chunk.position)
    return EntryLeft(ids, message_id.batch_size if message_id.batch_index >= 0 else 0)
