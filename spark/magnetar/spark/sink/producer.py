"""Publishes entries under a given name and with given sequence ids, to one partition of a topic."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final

from magnetar.client.client import PAUSE_S, PAUSE_S_MAX, Client
from magnetar.client.compression import compress
from magnetar.client.connection import Connection
from magnetar.client.errors import ClientError, ConnectionLost, Refused
from magnetar.client.topic_session import Link
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.frame import Frame, encode_entry, encode_payload_command
from magnetar.common.wire.producer_options import DEDUPLICATION, NOT_DEDUPLICATED, REQUIRED
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandSend,
    CompressionType,
    MessageMetadata,
    Schema,
    ServerError,
)
from magnetar.spark.sink.entries import OutgoingEntry, batch_payload
from magnetar.spark.sink.errors import WITHOUT_DEDUPLICATION, BadRow, NotDeduplicated

log = get_logger(__name__)

PENDING_BYTES_MAX: Final = 16 * 1024 * 1024
PENDING_ENTRIES_MAX: Final = 1_000
METADATA_BYTES_MAX: Final = 8 * 1024
"""Bytes of one message's metadata beside the largest payload that a broker takes."""


class NameBusy(ClientError):
    """The producer name is in use by an earlier attempt of the task, or by a connection that is not closed
    yet.
    """

    retriable: ClassVar[bool] = True


class InterruptedInTransaction(ClientError):
    """The connection ended while messages in a transaction were on their way: the attempt is given up."""

    retriable: ClassVar[bool] = True


_IN_DOUBT: Final = (
    "Messages on their way may be stored or not, and the topic does not deduplicate them: the transaction is "
    "aborted, and the task has to run again. With deduplication in the namespace the task would go on"
)


@dataclass(slots=True)
class _Pending:
    sequence_id: int
    frame: bytes


class SequencedProducer(Link):
    """One event loop; `open_when_free` before all else, `close` after all else."""

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        compression: CompressionType.ValueType,
        *,
        deduplicated: bool = True,
        schema: Schema | None = None,
        txn: TxnId | None = None,
    ) -> None:
        """`deduplicated`: the topic has to be; brokers of Magnetar say so before anything is published.
        `schema`: of all messages; the broker checks it when the producer opens. `txn`: everything is
        published in this transaction, which the topic has to take part in.
        """
        super().__init__(client, topic)
        self.name = name
        self._deduplicated = deduplicated
        self._schema = schema
        self._txn = txn
        self._schema_version = b""
        """Version of the schema at the topic, since the producer is open."""
        self.last_sequence_id = -1
        """Highest sequence id stored under this producer name at open; -1: none."""

        self._compression = compression
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._message_bytes_max = 0
        self._news = asyncio.Event()

    @property
    def pending_bytes(self) -> int:
        """Bytes sent and not yet confirmed."""
        return self._pending_bytes

    async def open_when_free(self, seconds_max: float) -> None:
        """Open it, waiting up to `seconds_max` while another producer has the name. Raises ClientError."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds_max, PAUSE_S
        told = False
        while True:
            try:
                await self.open()
                return
            except NameBusy as busy:
                if loop.time() + pause > deadline:
                    raise
                if not told:
                    log.info(
                        "waiting for a producer name", topic=self.topic, name=self.name, reason=str(busy)
                    )
                    told = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_S_MAX)

    async def send(self, entry: OutgoingEntry) -> None:
        """Publish, waiting while too many bytes are in flight. Raises ClientError, BadRow."""
        while self._pending and (
            self._pending_bytes >= PENDING_BYTES_MAX or len(self._pending) >= PENDING_ENTRIES_MAX
        ):
            await self._wait()
        if self.failed is not None:
            raise self.failed
        pending = _Pending(entry.sequence_ids[0], self._frame(entry))
        self._pending.append(pending)
        self._pending_bytes += len(pending.frame)
        if self._connection is not None:
            self._connection.write(pending.frame)
            await self._connection.drained()

    async def flushed(self) -> None:
        """Wait until everything is durable. Raises ClientError."""
        while self._pending:
            await self._wait()
        if self.failed is not None:
            raise self.failed

    async def close(self) -> None:
        """Close the producer; messages that are not durable yet may be lost, see `flushed`."""
        await self._stop_reopening()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        close = CommandCloseProducer(producer_id=self.id, request_id=0)
        try:
            await connection.request(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))
        except ClientError:
            pass  # It ends with its connection.
        self._detach(connection)

    def on_lost(self, error: ClientError) -> None:
        """Reconnects, unless messages could be stored twice by that."""
        if self._txn is not None and not self._deduplicated and self._pending:
            self.fail(InterruptedInTransaction(f"{self.topic}: {error}. {_IN_DOUBT}"))
        super().on_lost(error)

    def on_frame(self, field: str, frame: Frame) -> None:
        if field == "send_receipt":
            self._confirm(frame.command.send_receipt.sequence_id)
        elif field == "close_producer":
            self.on_lost(ConnectionLost(f"the broker closed {self.topic}"))
        else:
            refused = frame.command.send_error
            error = Refused(refused.error, refused.message, self.topic)
            if error.may_pass:
                self.on_lost(error)
            else:
                self.fail(error)

    def _confirm(self, sequence_id: int) -> None:
        if not self._pending or self._pending[0].sequence_id != sequence_id:
            return  # Of an entry that was sent twice.
        self._pending_bytes -= len(self._pending.popleft().frame)
        self._news.set()

    def _frame(self, entry: OutgoingEntry) -> bytes:
        """Raises BadRow for a message that is larger than the broker takes."""
        first = entry.rows[0]
        metadata = MessageMetadata(
            producer_name=self.name,
            sequence_id=entry.sequence_ids[0],
            publish_time=int(time.time() * 1000),
        )
        if self._schema_version:
            metadata.schema_version = self._schema_version
        send = CommandSend(producer_id=self.id, sequence_id=entry.sequence_ids[0])
        if self._txn is not None:
            metadata.txnid_most_bits = send.txnid_most_bits = self._txn.most
            metadata.txnid_least_bits = send.txnid_least_bits = self._txn.least
        if all((row.key, row.key_is_base64) == (first.key, first.key_is_base64) for row in entry.rows):
            if first.key is not None:
                metadata.partition_key = first.key
                if first.key_is_base64:
                    metadata.partition_key_b64_encoded = True
            if first.ordering_key:
                metadata.ordering_key = first.ordering_key
        if len(entry.rows) == 1:
            if first.event_time_ms:
                metadata.event_time = first.event_time_ms
            if first.deliver_at_ms:
                metadata.deliver_at_time = first.deliver_at_ms
            if first.null_value:
                metadata.null_value = True
            for name, value in first.properties:
                metadata.properties.add(key=name, value=value)
            payload = first.payload
        else:
            count = len(entry.rows)
            metadata.num_messages_in_batch = send.num_messages = count
            metadata.highest_sequence_id = send.highest_sequence_id = entry.sequence_ids[-1]
            payload = batch_payload(entry)
        if self._compression != CompressionType.NONE:
            metadata.compression = self._compression
            metadata.uncompressed_size = len(payload)
            payload = compress(self._compression, payload)
        encoded = metadata.SerializeToString()
        most = self._message_bytes_max
        if len(payload) > most or len(payload) + len(encoded) > most + METADATA_BYTES_MAX:
            raise BadRow(
                f"a row of {len(payload)} bytes, with {len(encoded)} bytes of metadata: {self.topic} takes "
                f"at most {most}, and with metadata {most + METADATA_BYTES_MAX}. Write smaller rows, set "
                "batch.bytes.max lower, or raise maxMessageSize of the brokers"
            )
        command = BaseCommand(type=BaseCommand.SEND, send=send)
        return encode_payload_command(command, encode_entry(encoded, payload))

    async def _attach(self, connection: Connection) -> None:
        connection.producers[self.id] = self
        command = CommandProducer(
            topic=self.topic,
            producer_id=self.id,
            request_id=0,
            epoch=self.opened,
            producer_name=self.name,
            user_provided_producer_name=True,
            txn_enabled=self._txn is not None,
        )
        if self._schema is not None:
            command.schema.CopyFrom(self._schema)
        if self._deduplicated:
            command.metadata.add(key=DEDUPLICATION, value=REQUIRED)
        try:
            answer = await connection.request(
                BaseCommand(type=BaseCommand.PRODUCER, producer=command),
                self.topic,
                self.client.options.operation_timeout_s,
            )
        except Refused as refused:
            if NOT_DEDUPLICATED in refused.reason:
                raise NotDeduplicated(f"{self.topic}: {WITHOUT_DEDUPLICATION}") from refused
            if refused.code != ServerError.ProducerBusy:
                raise
            raise NameBusy(
                f"{refused}. An earlier attempt of this task still has the name {self.name!r}, or another "
                "query has the same query.id"
            ) from refused
        self._schema_version = answer.producer_success.schema_version if self._schema is not None else b""
        if not self.opened:
            last = answer.producer_success.last_sequence_id
            self.last_sequence_id = last
        self._message_bytes_max = connection.message_bytes_max
        for pending in self._pending:
            connection.write(pending.frame)

    def _detach(self, connection: Connection) -> None:
        connection.producers.pop(self.id, None)

    def _on_failed(self, error: ClientError) -> None:
        self._news.set()

    async def _wait(self) -> None:
        """Wait for the next confirmation. Raises ClientError when none will come."""
        if self.failed is not None:
            raise self.failed
        self._news.clear()
        await self._news.wait()
