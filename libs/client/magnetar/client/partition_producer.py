"""A producer for one non-partitioned topic or one partition."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.client.client import Client
from magnetar.client.connection import Connection
from magnetar.client.encryption import Encryptor
from magnetar.client.entries import send_frame
from magnetar.client.errors import ClientError, ConnectionLost, Refused
from magnetar.client.messages import MessageId, Outgoing
from magnetar.client.topic_session import Link
from magnetar.common.wire.frame import Frame
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CompressionType,
    ProducerAccessMode,
)

OnSent = Callable[[Sequence[float], MessageId], None]
"""Called with (tags of an entry's messages, entry id) once the entry is durable."""

METADATA_ROOM_BYTES: Final = 1_024
"""Bytes of the largest message that are reserved for the metadata of batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Producer options with the names and defaults of pulsar-client. Times are in seconds."""

    batching: bool = True
    batch_messages_max: int = 1_000
    batch_bytes_max: int = 128 * 1_024
    batch_window_s: float = 0.001
    pending_messages_max: int = 1_000
    compression: CompressionType.ValueType = CompressionType.NONE
    name: str = ""
    exclusive: bool = False
    fencing: bool = False
    """Exclusive, and shuts out the producer that was exclusive before."""
    public_keys: Mapping[str, bytes] = field(default_factory=dict)
    """RSA public keys (PEM) by name: messages are encrypted for each; none: not encrypted."""


@dataclass(slots=True)
class _Batch:
    messages: list[Outgoing] = field(default_factory=list)
    tags: list[float] = field(default_factory=list)
    byte_length: int = 0


@dataclass(slots=True)
class _Pending:
    """An entry that is sent but not confirmed."""

    sequence_id: int
    frame: bytes
    tags: list[float]


class PartitionProducer(Link):
    """Keeps messages in order within a key, and among all messages without a key."""

    def __init__(self, client: Client, topic: str, options: ProducerOptions, on_sent: OnSent) -> None:
        """Raises ClientError for a public key that cannot encrypt."""
        super().__init__(client, topic)
        self._options = options
        self._encryptor = Encryptor(options.public_keys) if options.public_keys else None
        self._on_sent = on_sent
        self._name = options.name
        self._sequence_id = 0
        self._batches: dict[str | None, _Batch] = {}
        self._pending: deque[_Pending] = deque()
        self._in_flight = 0
        self._message_bytes_max = 0
        self._flushing: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    @property
    def has_room(self) -> bool:
        return self._in_flight < self._options.pending_messages_max and self.failed is None

    @property
    def between_batches(self) -> bool:
        """Whether no message waits for its batch to fill."""
        return not self._batches

    async def room(self) -> None:
        """Waits until another message may be sent. Raises ClientError."""
        while not self.has_room:
            if self.failed is not None:
                raise self.failed
            self.flush_batches()
            await self._wait()
        if self._connection is not None:
            await self._connection.drained()

    def send(self, message: Outgoing, tag: float = 0.0) -> None:
        """Publishes a message; `tag` is passed to OnSent once it is durable. Raises ClientError if it is too
        large.
        """
        length = len(message.payload)
        if length > self._message_bytes_max:
            raise ClientError(
                f"a message of {length} bytes, {self.topic} takes at most {self._message_bytes_max}: "
                "send smaller ones, or raise maxMessageSize of the brokers"
            )
        self._in_flight += 1
        options = self._options
        if not options.batching:
            self._write(_Batch([message], [tag]))
            return
        length += METADATA_ROOM_BYTES if message.properties else 0
        batch = self._batches.get(message.key)
        if batch is not None and batch.byte_length + length > options.batch_bytes_max:
            self._write(self._batches.pop(message.key))
            batch = None
        if batch is None:
            batch = self._batches[message.key] = _Batch()
            if self._flushing is None:
                loop = asyncio.get_running_loop()
                self._flushing = loop.call_later(options.batch_window_s, self.flush_batches)
        batch.messages.append(message)
        batch.tags.append(tag)
        batch.byte_length += length
        if len(batch.messages) >= options.batch_messages_max:
            self._write(self._batches.pop(message.key))

    def flush_batches(self) -> None:
        """Sends the batches that are not full."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            self._write(batch)

    async def flushed(self) -> None:
        """Waits until every message sent is durable. Raises ClientError."""
        self.flush_batches()
        while self._in_flight:
            if self.failed is not None:
                raise self.failed
            await self._wait()

    async def close(self) -> None:
        """Closes the producer; messages that are not durable may be lost: call `flushed` first."""
        await self._stop_reopening()
        if self._flushing is not None:
            self._flushing.cancel()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        close = CommandCloseProducer(producer_id=self.id, request_id=0)
        try:
            await connection.request(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))
        except ClientError:
            pass  # It ends with its connection.
        self._detach(connection)

    def on_frame(self, field: str, frame: Frame) -> None:
        if field == "send_receipt":
            receipt = frame.command.send_receipt
            self._confirm(receipt.sequence_id, receipt.message_id.ledgerId, receipt.message_id.entryId)
        elif field == "close_producer":
            self.on_lost(ConnectionLost(f"the broker closed {self.topic}"))
        else:
            refused = frame.command.send_error
            error = Refused(refused.error, refused.message, self.topic)
            if error.may_pass:
                self.on_lost(error)
            else:
                self.fail(error)

    def _confirm(self, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        pending = self._pending
        if not pending or pending[0].sequence_id != sequence_id:
            return  # A receipt of an entry that was sent twice.
        tags = pending.popleft().tags
        self._in_flight -= len(tags)
        self._news.set()
        self._on_sent(tags, MessageId(ledger_id, entry_id))

    def _write(self, batch: _Batch) -> None:
        count = len(batch.messages)
        try:
            frame = send_frame(
                batch.messages,
                batched=self._options.batching,
                producer_id=self.id,
                producer_name=self._name,
                sequence_id=self._sequence_id,
                publish_time_ms=int(time.time() * 1000),
                compression=self._options.compression,
                encryptor=self._encryptor,
            )
        except ClientError as error:
            self.fail(error)
            return
        self._pending.append(_Pending(self._sequence_id, frame, batch.tags))
        self._sequence_id += count
        if self._connection is not None:
            self._connection.write(frame)

    async def _attach(self, connection: Connection) -> None:
        connection.producers[self.id] = self
        command = CommandProducer(
            topic=self.topic,
            producer_id=self.id,
            request_id=0,
            epoch=self.opened,
            user_provided_producer_name=bool(self._options.name),
            encrypted=self._encryptor is not None,
            producer_access_mode=_access_mode(self._options),
        )
        if self._name:
            command.producer_name = self._name
        answer = await connection.request(
            BaseCommand(type=BaseCommand.PRODUCER, producer=command),
            self.topic,
            self.client.options.operation_timeout_s,
        )
        self._name = answer.producer_success.producer_name
        if not self.opened:
            self._sequence_id = answer.producer_success.last_sequence_id + 1
        self._message_bytes_max = connection.message_bytes_max
        for entry in self._pending:
            connection.write(entry.frame)

    def _detach(self, connection: Connection) -> None:
        connection.producers.pop(self.id, None)

    def _on_failed(self, error: ClientError) -> None:
        self._news.set()

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()


def _access_mode(options: ProducerOptions) -> ProducerAccessMode.ValueType:
    if options.fencing:
        return ProducerAccessMode.ExclusiveWithFencing
    return ProducerAccessMode.Exclusive if options.exclusive else ProducerAccessMode.Shared
