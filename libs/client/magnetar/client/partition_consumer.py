"""A consumer of one non-partitioned topic or one partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from magnetar.client.chunks import Chunks
from magnetar.client.client import Client
from magnetar.client.connection import Connection
from magnetar.client.deliveries import messages_of
from magnetar.client.encryption import CryptoFailure, Decryptor, KeyReader
from magnetar.client.errors import ClientError, ConnectionLost
from magnetar.client.messages import EntryLeft, Incoming
from magnetar.client.topic_session import Link
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.ack_set import acked_bits_to_words
from magnetar.common.wire.frame import Frame, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandFlow,
    CommandMessage,
    CommandSubscribe,
    KeySharedMeta,
    KeySharedMode,
    MessageIdData,
)

SubscriptionType = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]

ACKS_MAX: Final = 1_000
ACK_DELAY_S: Final = 0.1
_EARLIEST: Final = 2**64 - 1
_LATEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Consumer options, named as in pulsar-client."""

    subscription: str
    type: SubscriptionType = "Exclusive"
    earliest: bool = False
    durable: bool = True
    queue_size: int = 1_000
    name: str = ""
    read_key: KeyReader | None = None
    """Returns private keys for encrypted messages."""
    crypto_failure: CryptoFailure = "fail"


class PartitionConsumer(Link):
    """Passes each message to `deliver` on arrival; grants further permits as messages are `taken`."""

    def __init__(
        self,
        client: Client,
        topic: str,
        options: ConsumerOptions,
        deliver: Callable[[list[Incoming]], None],
        on_failed: Callable[[ClientError], None],
    ) -> None:
        super().__init__(client, topic)
        self._options = options
        self._deliver = deliver
        self._tell_failed = on_failed
        self._chunks = Chunks()
        self._decryptor = None if options.read_key is None else Decryptor(options.read_key)
        self._taken = 0
        self._acks: list[MessageIdData] = []
        self._partial: dict[tuple[int, int], EntryLeft] = {}
        self._acking: asyncio.TimerHandle | None = None
        self._last: tuple[int, int] | None = None

    def taken(self, messages: int) -> None:
        """Records that the application took messages, and grants permits for more."""
        self._taken += messages
        if self._taken * 2 >= self._options.queue_size and self._connection is not None:
            self._grant(self._connection, self._taken)
            self._taken = 0

    def ack(self, message: Incoming) -> None:
        """Acknowledges a message; sent to the broker within 0.1 s, and on close."""
        left = message.entry
        if left.batch_size:
            left.acked_bits |= 1 << message.id.batch_index
            if left.acked_bits != (1 << left.batch_size) - 1:
                self._partial[left.ids[0]] = left
                return
            self._partial.pop(left.ids[0], None)
        self._acks += [MessageIdData(ledgerId=ledger, entryId=entry) for ledger, entry in left.ids]
        if len(self._acks) >= ACKS_MAX:
            self._send_acks()
        elif self._acking is None:
            self._acking = asyncio.get_running_loop().call_later(ACK_DELAY_S, self._send_acks)

    async def close(self) -> None:
        """Sends pending acknowledgements and closes the consumer; a durable subscription remains."""
        await self._stop_reopening()
        if self._acking is not None:
            self._acking.cancel()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        for (ledger, entry), left in self._partial.items():
            words = acked_bits_to_words(left.acked_bits, left.batch_size)
            self._acks.append(
                MessageIdData(ledgerId=ledger, entryId=entry, ack_set=words, batch_size=left.batch_size)
            )
        try:
            if self._acks:
                await connection.request(self._ack_command(), self.topic)
            close = CommandCloseConsumer(consumer_id=self.id, request_id=0)
            await connection.request(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close))
        except ClientError:
            pass  # It ends with its connection.
        self._detach(connection)

    def on_frame(self, field: str, frame: Frame) -> None:
        if field == "close_consumer":
            self.on_lost(ConnectionLost(f"the broker closed {self.topic}"))
        elif field == "message":
            command = frame.command.message
            self._last = command.message_id.ledgerId, command.message_id.entryId
            try:
                found = self._decoded(command, frame.entry)
            except DataCorruption as error:
                self.fail(ClientError(f"{self.topic}, {self._last[0]}:{self._last[1]}: {error}"))
                return
            if found:
                self._deliver(found)
            else:
                self.taken(1)

    def _decoded(self, command: CommandMessage, entry: bytes) -> list[Incoming]:
        """Returns the messages to deliver; acknowledges those to discard. Raises DataCorruption."""
        action = self._options.crypto_failure
        found = list(messages_of(self.topic, command, entry, self._chunks, self._decryptor, action))
        for message in found:
            if message.encrypted is not None and message.encrypted.batch_size > 1:
                self.taken(message.encrypted.batch_size - 1)  # The broker's permits count each message of it.
        if action != "discard" or all(message.encrypted is None for message in found):
            return found
        for message in found:
            self.ack(message)
        return []

    def _grant(self, connection: Connection, permits: int) -> None:
        flow = CommandFlow(consumer_id=self.id, messagePermits=permits)
        connection.write(encode_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))

    def _send_acks(self) -> None:
        self._acking = None
        if self._acks and self._connection is not None:
            self._connection.write(encode_command(self._ack_command()))

    def _ack_command(self) -> BaseCommand:
        acks, self._acks = self._acks, []
        ack = CommandAck(consumer_id=self.id, ack_type=CommandAck.Individual, message_id=acks)
        return BaseCommand(type=BaseCommand.ACK, ack=ack)

    async def _attach(self, connection: Connection) -> None:
        options = self._options
        connection.consumers[self.id] = self
        command = CommandSubscribe(
            topic=self.topic,
            subscription=options.subscription,
            subType=CommandSubscribe.SubType.Value(options.type),
            consumer_id=self.id,
            request_id=0,
            durable=options.durable,
            initialPosition=CommandSubscribe.Earliest if options.earliest else CommandSubscribe.Latest,
        )
        if options.name:
            command.consumer_name = options.name
        if not options.durable:
            number = _EARLIEST if options.earliest else _LATEST
            ledger, entry = self._last or (number, number)
            command.start_message_id.CopyFrom(MessageIdData(ledgerId=ledger, entryId=entry))
        if options.type == "Key_Shared":
            command.keySharedMeta.CopyFrom(KeySharedMeta(keySharedMode=KeySharedMode.AUTO_SPLIT))
        await connection.request(
            BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=command),
            self.topic,
            self.client.options.operation_timeout_s,
        )
        self._chunks.clear()
        self._taken = 0
        self._grant(connection, options.queue_size)

    def _detach(self, connection: Connection) -> None:
        connection.consumers.pop(self.id, None)

    def _on_failed(self, error: ClientError) -> None:
        self._tell_failed(error)
