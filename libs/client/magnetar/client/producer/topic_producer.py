"""A producer of one topic or partition: sequence ids, batches, and what is on its way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable
from typing import Final

from magnetar.client.back_off import BackOff
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.frames import Receipts
from magnetar.client.encryption import Encryptor
from magnetar.client.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    MessageTooLarge,
    OperationTimeout,
    ProducerFenced,
    QueueFull,
    QuotaExceeded,
    SendTimeout,
    refusal,
)
from magnetar.client.lookup import RETRY_S_MAX
from magnetar.client.messages import OnSent, Outgoing
from magnetar.client.producer.entries import EntryEncoder, plain_in_batch, single_in_batch
from magnetar.client.producer.options import ACCESS_MODES, COMPRESSIONS, ProducerOptions
from magnetar.client.producer.pending import PendingEntries, PendingEntry
from magnetar.client.session import ClientParts, TopicSession
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandSendError,
    MessageIdData,
    Schema,
    ServerError,
)
from magnetar.common.wire.varint import UINT64_MAX

_log = logging.getLogger(__name__)

PLAIN_METADATA_BYTES: Final = 32
"""Bytes of a message in a batch beside its payload, at most, if it has nothing else."""

CHUNK_METADATA_BYTES: Final = 1_024
"""Bytes of a chunk that are left for the fields of its metadata, beside its properties."""

_FINAL: Final = frozenset({ServerError.TopicTerminatedError, ServerError.ProducerFenced})
"""Codes of SendError after which the producer cannot send any more."""
_OF_MESSAGE: Final = frozenset({ServerError.NotAllowedError, ServerError.InvalidTxnStatus})
"""Codes of SendError that refuse one entry; after others the producer connects again and sends it again."""


class _Batch:
    """Messages that are collected into one entry."""

    __slots__ = ("byte_length", "done", "first", "last_sequence_id", "parts", "sequence_id", "taken_bytes")

    def __init__(self, first: Outgoing, sequence_id: int) -> None:
        self.first = first
        self.sequence_id = self.last_sequence_id = sequence_id
        self.parts: list[bytes] = []
        self.done: list[OnSent | None] = []
        self.byte_length = 0
        self.taken_bytes = 0

    def append(self, part: bytes, sequence_id: int, done: OnSent | None, taken_bytes: int) -> None:
        """Adds a message that is encoded already; it takes so many bytes of the client's memory limit."""
        self.parts.append(part)
        self.done.append(done)
        self.byte_length += len(part)
        self.taken_bytes += taken_bytes
        self.last_sequence_id = sequence_id


class TopicProducer:
    """Keeps messages in order; created by `Producer`. All methods but open and close are plain calls."""

    __slots__ = (
        "_batch_bytes_max",
        "_batch_messages_max",
        "_batch_timer",
        "_batches",
        "_encoder",
        "_encryptor",
        "_id",
        "_idle_callbacks",
        "_message_bytes_max",
        "_messages",
        "_next_sequence_id",
        "_options",
        "_parts",
        "_pending",
        "_refusal_pauses",
        "_room_waiters",
        "_schema",
        "_session",
        "_single_bytes_max",
        "_stored_at_refusal",
        "_timeout",
        "_topic_epoch",
        "last_sequence_id",
        "name",
        "topic",
    )

    def __init__(
        self,
        parts: ClientParts,
        topic: str,
        options: ProducerOptions,
        schema: Schema | None,
        encryptor: Encryptor | None,
    ) -> None:
        self.topic = topic
        self.name = options.name
        """The producer's name, which the broker makes up if none is given."""
        self.last_sequence_id = -1
        """The highest sequence id that is stored, as far as known."""
        self._parts = parts
        self._options = options
        self._schema = schema
        self._encryptor = encryptor
        self._id = parts.next_id()
        self._session = TopicSession(parts, topic, self)
        self._encoder: EntryEncoder | None = None
        self._next_sequence_id = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        self._message_bytes_max = MESSAGE_BYTES_MAX
        self._single_bytes_max = MESSAGE_BYTES_MAX
        """Bytes of a payload above which it is cut into chunks, where that is on."""
        batching = options.batching
        self._batch_messages_max = 0 if batching is None else batching.max_messages
        self._batch_bytes_max = 0 if batching is None else batching.max_bytes
        self._pending = PendingEntries(TopicName.parse(topic).partition_index)
        self._messages = 0
        self._batches: dict[Hashable, _Batch] = {}
        self._batch_timer: asyncio.Handle | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._idle_callbacks: list[asyncio.Future[None]] = []
        self._room_waiters: list[asyncio.Future[None]] = []
        self._topic_epoch: int | None = None
        self._refusal_pauses = BackOff(most_s=RETRY_S_MAX)
        """Between attempts to send what the broker could not store."""
        self._stored_at_refusal = -1
        """`last_sequence_id` at the last refusal."""

    @property
    def is_usable(self) -> bool:
        """Whether it is neither failed nor closed."""
        return self._session.is_usable

    @property
    def is_connected(self) -> bool:
        """Whether it is open at the owner of the topic now."""
        return self._session.connection is not None

    @property
    def between_batches(self) -> bool:
        """Whether no message waits for its batch to fill."""
        return not self._batches

    @property
    def has_room(self) -> bool:
        """Whether a message may be added without an error."""
        connection = self._session.connection
        return (
            self._messages < self._options.max_pending_messages
            and self._parts.memory.has_room
            and (connection is None or connection.is_writable)
        )

    async def open(self) -> None:
        """Opens it. Raises Refused, ConnectionLost, OperationTimeout."""
        await self._session.open()

    def add(self, message: Outgoing, done: OnSent | None, sequence_id: int | None = None) -> int:
        """Publishes a message and returns its sequence id; `done` is called once, never from here.

        Raises QueueFull, MemoryLimitReached, MessageTooLarge, Closed, or the error with which it ended.
        """
        session = self._session
        if not session.is_usable or self._encoder is None:
            session.check()
            raise Closed(f"{self.topic}: the producer is not open yet")
        options = self._options
        if self._messages >= options.max_pending_messages:
            raise QueueFull(
                f"{self.topic}: {self._messages} messages are unconfirmed: wait for receipts (await send "
                "waits by itself), or raise max_pending_messages"
            )
        size = len(message.payload)
        if size > self._message_bytes_max and not options.chunking and options.compression == "none":
            raise self._too_large(size)
        if sequence_id is None:
            sequence_id = self._next_sequence_id
        batching = options.batching
        if batching is None or message.deliver_at_ms or size > self._single_bytes_max:
            self._add_alone(message, done, sequence_id, size)
            return sequence_id
        part = single_in_batch(message, sequence_id)  # It may raise, so nothing is counted before.
        self._parts.memory.take(size)
        self._next_sequence_id = sequence_id + 1
        self._messages += 1
        kind: Hashable = None
        if not message.is_plain or batching.by_key:
            kind = (
                message.txn,
                tuple(message.replicate_to),
                message.schema_version,
                (message.ordering_key or message.key) if batching.by_key else None,
            )
        batch = self._batches.get(kind)
        if batch is not None and batch.byte_length + len(part) > self._batch_bytes_max:
            self.flush_batches()
            batch = None
        if batch is None:
            if self._batches and not batching.by_key:
                self.flush_batches()
            batch = self._batches[kind] = _Batch(message, sequence_id)
            self._schedule_flush()
        batch.append(part, sequence_id, done, size)
        if len(batch.parts) >= batching.max_messages:
            self.flush_batches()
        return sequence_id

    def _add_alone(self, message: Outgoing, done: OnSent | None, sequence_id: int, size: int) -> None:
        """Publishes a message as an entry of its own, or as several."""
        encoder = self._encoder
        assert encoder is not None
        self._parts.memory.take(size)
        if self._batches:
            self.flush_batches()
        self._messages += 1
        try:
            if size > self._single_bytes_max:
                self._send_chunks(message, sequence_id, done, size)
            else:
                frame = encoder.single(message, sequence_id, int(time.time() * 1_000))
                self._send(PendingEntry(sequence_id, frame, [done], size, 0.0))
        except BaseException:
            self._messages -= 1
            self._parts.memory.release(size)
            raise
        self._next_sequence_id = sequence_id + 1

    def add_plain(self, payload: bytes, done: OnSent | None) -> bool:
        """Adds a message that has only a payload to the batch that waits; returns False where it does not go
        in, so that `add` decides. Most messages of a busy producer need no more than this.
        """
        batch = self._batches.get(None)
        size = len(payload)
        if (
            batch is None
            or batch.byte_length + size + PLAIN_METADATA_BYTES > self._batch_bytes_max
            or self._messages >= self._options.max_pending_messages
            or not self._parts.memory.has_room
        ):
            return False
        self._parts.memory.used_bytes += size
        sequence_id = self._next_sequence_id
        self._next_sequence_id = sequence_id + 1
        self._messages += 1
        batch.append(plain_in_batch(payload, sequence_id), sequence_id, done, size)
        if len(batch.parts) >= self._batch_messages_max:
            self.flush_batches()
        return True

    def flush_batches(self) -> None:
        """Sends all batches, in the order of their last messages: brokers that drop duplicates drop what
        comes after a higher sequence id.
        """
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        batches, self._batches = self._batches, {}
        for batch in sorted(batches.values(), key=lambda each: each.last_sequence_id):
            self._send_batch(batch, is_interleaved=len(batches) > 1)

    async def idle(self) -> None:
        """Sends what waits, and returns once every message is stored or failed."""
        self.flush_batches()
        while self._messages:
            await self._woken_from(self._idle_callbacks)

    async def room(self) -> None:
        """Waits until a message may be added. Raises the error with which it ended."""
        while not self.has_room:
            self._session.check()
            connection = self._session.connection
            if connection is not None and not connection.is_writable:
                await connection.writable()
                continue
            self.flush_batches()
            if self._messages < self._options.max_pending_messages:
                self._parts.memory.when_released(self, self._wake_room)
            await self._woken_from(self._room_waiters)

    async def close(self, error: ClientError) -> None:
        """Closes it; messages that are unconfirmed fail with `error`."""
        if self._batch_timer is not None:
            self._batch_timer.cancel()
        if self._timeout is not None:
            self._timeout.cancel()
        await self._session.close()
        self._fail_pending(error)  # Once it is closed: a callback may send again.
        connection = self._session.take_connection()
        if connection is None:
            return
        try:
            timeout_s = self._parts.options.operation_timeout_s
            await connection.request(self._close_command(), self.topic, timeout_s)
        except ClientError as refused:
            _log.debug("%s: closing the producer: %s", self.topic, refused)  # It ends with its connection.
        finally:
            self.detach(connection)

    # For the connection

    def on_receipt(self, sequence_id: int, message_id: MessageIdData) -> None:
        ledger_id, entry_id = message_id.ledgerId, message_id.entryId
        if ledger_id == UINT64_MAX:  # A duplicate, or a topic that is not persistent: stored nowhere else.
            ledger_id = entry_id = -1
        self._confirm(sequence_id, ledger_id, entry_id)
        if self._batches and not self._pending:
            self.flush_batches()

    def on_receipts(self, receipts: Receipts) -> None:
        sequence_id, entry_id = receipts.first_sequence_id, receipts.first_entry_id
        for number in range(receipts.count):
            self._confirm(sequence_id + number, receipts.ledger_id, entry_id + number)
        if self._batches and not self._pending:
            self.flush_batches()

    def _confirm(self, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        entry = self._pending.confirm(sequence_id, ledger_id, entry_id)
        if entry is None:
            expected = self._pending.next_sequence_id
            if expected is not None and sequence_id > expected and self._session.connection is not None:
                # Receipts come in order: those before it are lost, and sending again is safe.
                self._session.lost(
                    ConnectionLost(f"a receipt for {sequence_id} came before that for {expected}")
                )
            return
        if entry.done:
            last = max(sequence_id, entry.last_sequence_id)
            if last > self.last_sequence_id:
                self.last_sequence_id = last
        self._released(entry)

    def on_send_error(self, error: CommandSendError) -> None:
        refused = refusal(error.error, error.message, self.topic)
        if error.error in _FINAL:
            self._session.fail(refused)
        elif error.error in _OF_MESSAGE:
            for entry in self._pending.refuse(error.sequence_id, refused):
                self._released(entry)
        else:
            if self.last_sequence_id != self._stored_at_refusal:  # Something was stored since the last one.
                self._stored_at_refusal = self.last_sequence_id
                self._refusal_pauses.reset()
            self._session.lost(refused, pause_s=self._refusal_pauses.next_s())

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        self._session.lost(reason, assigned_url)

    # For the session

    async def attach(self, connection: Connection) -> None:
        connection.producers[self._id] = self
        options = self._options
        command = CommandProducer(
            topic=self.topic,
            producer_id=self._id,
            request_id=0,
            epoch=self._session.opened,
            user_provided_producer_name=bool(options.name),
            encrypted=self._encryptor is not None,
            producer_access_mode=ACCESS_MODES[options.access_mode],
        )
        if self.name:
            command.producer_name = self.name
        if self._schema is not None:
            command.schema.CopyFrom(self._schema)
        if self._topic_epoch is not None:
            command.topic_epoch = self._topic_epoch
        if options.initial_subscription:
            command.initial_subscription_name = options.initial_subscription
        for name, value in options.properties.items():
            command.metadata.add(key=name, value=value)
        waits = options.access_mode == "wait_for_exclusive"
        try:
            answer = await connection.request(
                BaseCommand(type=BaseCommand.PRODUCER, producer=command),
                self.topic,
                None if waits else self._parts.options.operation_timeout_s,
            )
        except QuotaExceeded as error:
            if error.code == ServerError.ProducerBlockedQuotaExceededException:
                self._fail_pending(error)
            raise
        except (OperationTimeout, asyncio.CancelledError):
            connection.write(encode_command(self._close_command()))  # The broker may open it yet.
            raise
        found = answer.producer_success
        self.name = found.producer_name
        if found.HasField("topic_epoch"):
            self._topic_epoch = found.topic_epoch
        if self._encoder is None:
            self._encoder = EntryEncoder(
                self._id, self.name, COMPRESSIONS[options.compression], self._encryptor
            )
            self.last_sequence_id = found.last_sequence_id
            self._next_sequence_id = max(self._next_sequence_id, found.last_sequence_id + 1)
        self._encoder.schema_version = found.schema_version if self._schema is not None else b""
        self._message_bytes_max = self._single_bytes_max = connection.message_bytes_max
        if options.batching is not None:
            self._batch_bytes_max = min(options.batching.max_bytes, self._message_bytes_max)
        if options.chunking and options.chunk_bytes_max:
            self._single_bytes_max = min(self._message_bytes_max, options.chunk_bytes_max)
        for frame in self._pending.frames():
            connection.write(frame)

    @property
    def schema_version(self) -> bytes:
        """The version of the producer's schema at the topic; empty without one."""
        return self._encoder.schema_version if self._encoder is not None else b""

    def detach(self, connection: Connection) -> None:
        connection.producers.pop(self._id, None)

    def on_failed(self, error: ClientError) -> None:
        if not isinstance(error, ProducerFenced):
            _log.warning("%s: the producer ended: %s", self.topic, error)
        self._fail_pending(error)

    def _close_command(self) -> BaseCommand:
        close = CommandCloseProducer(producer_id=self._id, request_id=0)
        return BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close)

    def _send_chunks(self, message: Outgoing, sequence_id: int, done: OnSent | None, size: int) -> None:
        """Sends a message that is larger than the broker takes: in chunks, unless compression suffices."""
        encoder, options = self._encoder, self._options
        assert encoder is not None
        chunk_bytes = self._message_bytes_max
        if options.chunking:
            chunk_bytes -= CHUNK_METADATA_BYTES + _properties_bytes(message)
        if options.chunk_bytes_max:
            chunk_bytes = min(chunk_bytes, options.chunk_bytes_max)
        uuid, now_ms = f"{self.name}-{sequence_id}", int(time.time() * 1_000)
        frames = encoder.chunks(message, sequence_id, now_ms, max(chunk_bytes, 1), uuid)
        if len(frames) > 1 and not options.chunking:
            raise self._too_large(size)
        for frame in frames[:-1]:
            self._send(PendingEntry(sequence_id, frame, [], 0, 0.0))
        self._send(PendingEntry(sequence_id, frames[-1], [done], size, 0.0))

    def _send_batch(self, batch: _Batch, *, is_interleaved: bool) -> None:
        """Sends a batch; one whose sequence ids lie between those of others has the last of them as its only
        one, as Java's batches by key.
        """
        encoder = self._encoder
        assert encoder is not None
        now_ms = int(time.time() * 1_000)
        first, count, last = batch.first, len(batch.parts), batch.last_sequence_id
        sequence_id = last if is_interleaved else batch.sequence_id
        if count == 1:
            frame = encoder.single(first, sequence_id, now_ms)
        else:
            frame = encoder.batch(batch.parts, first, sequence_id, last, now_ms)
        self._send(PendingEntry(sequence_id, frame, batch.done, batch.taken_bytes, 0.0, count > 1, last))

    def _send(self, entry: PendingEntry) -> None:
        loop = self._parts.home.loop
        entry.sent_at = loop.time()
        self._pending.add(entry)
        connection = self._session.connection
        if connection is not None:
            connection.write(entry.frame)
        if self._timeout is None and self._options.send_timeout_s > 0:
            self._timeout = loop.call_later(self._options.send_timeout_s, self._expire)

    def _schedule_flush(self) -> None:
        if self._batch_timer is not None:
            return
        loop, batching = self._parts.home.loop, self._options.batching
        assert batching is not None
        if self._pending:
            self._batch_timer = loop.call_later(batching.max_delay_s, self.flush_batches)
        else:  # Nothing is on its way: a lone message leaves at the end of this turn.
            self._batch_timer = loop.call_soon(self.flush_batches)

    def _expire(self) -> None:
        """Fails entries that are unconfirmed for too long, and waits for the next one."""
        loop, limit_s = self._parts.home.loop, self._options.send_timeout_s
        error = SendTimeout(
            f"{self.topic}: no receipt within {limit_s:g} s; the message may be stored or not. Is the broker "
            "reachable? A longer send_timeout_s waits for it"
        )
        for entry in self._pending.expire(loop.time(), limit_s, error):
            self._released(entry)
        oldest = self._pending.oldest_sent_at
        self._timeout = None
        if oldest is not None:
            self._timeout = loop.call_at(oldest + limit_s, self._expire)

    async def _woken_from(self, waiters: list[asyncio.Future[None]]) -> None:
        waiting: asyncio.Future[None] = self._parts.home.loop.create_future()
        waiters.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting in waiters:
                waiters.remove(waiting)
            raise

    def _wake_room(self) -> None:
        waiters, self._room_waiters = self._room_waiters, []
        _wake(waiters)

    def _released(self, entry: PendingEntry) -> None:
        self._messages -= len(entry.done)
        self._parts.memory.release(entry.byte_length)
        if self._room_waiters and self._messages < self._options.max_pending_messages:
            self._wake_room()
        if self._idle_callbacks and not self._messages:
            waiters, self._idle_callbacks = self._idle_callbacks, []
            _wake(waiters)

    def _fail_pending(self, error: ClientError) -> None:
        """Fails all unconfirmed messages, and those in batches."""
        batches, self._batches = self._batches, {}
        for entry in self._pending.fail(error):
            self._released(entry)
        for batch in batches.values():
            self._released(PendingEntry(batch.sequence_id, b"", batch.done, batch.taken_bytes, 0.0))
            for done in batch.done:
                if done is not None:
                    done(error, None)
        self._wake_room()

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a message of {size} bytes, {self.topic} takes at most {self._message_bytes_max}: send smaller "
            "ones, set chunking, or raise maxMessageSize of the brokers"
        )


def _properties_bytes(message: Outgoing) -> int:
    return sum(len(name) + len(value) + 8 for name, value in message.properties.items()) * 2


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiting in waiters:
        if not waiting.done():
            waiting.set_result(None)
