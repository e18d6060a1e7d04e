"""Publishes entries under a given name and with given sequence ids, to one partition of a topic.

The client's own producer decides which messages share an entry, and its ids follow one another. Here both
come from the rows alone, so that each attempt of a task publishes the same: this producer has the client's
session, encoder and pending entries, and the sink's entries.
"""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar, Final

from magnetar.client.back_off import BackOff
from magnetar.client.client import Client
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.frames import Receipts
from magnetar.client.errors import ClientError, ProducerBusy, Refused, refusal
from magnetar.client.messages import Outgoing
from magnetar.client.producer.entries import EntryEncoder
from magnetar.client.producer.pending import PendingEntries, PendingEntry
from magnetar.client.session import TopicSession
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.frame import ENTRY_HEADER, ENTRY_HEADER_BYTES, SIZES
from magnetar.common.wire.producer_options import DEDUPLICATION, NOT_DEDUPLICATED, REQUIRED
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandSendError,
    CompressionType,
    MessageIdData,
    Schema,
)
from magnetar.spark.sink.entries import OutgoingEntry, batch_parts
from magnetar.spark.sink.errors import WITHOUT_DEDUPLICATION, BadRow, NotDeduplicated
from magnetar.spark.sink.rows import OutgoingRow
from magnetar.spark.sink.sequence_numbers import NONE_YET

log = get_logger(__name__)

PENDING_BYTES_MAX: Final = 16 * 1024 * 1024
PENDING_ENTRIES_MAX: Final = 1_000
METADATA_BYTES_MAX: Final = 8 * 1024
"""Bytes of one message's metadata beside the largest payload that a broker takes."""

UNWRITTEN_BYTES_MAX: Final = 128 * 1024
"""Bytes that are collected until the connection's turn to send them, while entries are encoded."""

RETRY_S_MAX: Final = 5.0


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


class SequencedProducer:
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
        self._parts = parts = client.parts
        self.topic = topic
        self.name = name
        self.last_sequence_id = NONE_YET
        """Highest sequence id stored under this producer name at open; -1: none."""
        self._id = parts.next_id()
        self._session = TopicSession(parts, topic, self)
        self._encoder = EntryEncoder(self._id, name, compression, None)
        self._deduplicated = deduplicated
        self._schema = schema
        self._schema_version = b""
        """Version of the schema at the topic, since the producer is open."""
        self._txn = txn
        self._pending = PendingEntries(-1)
        self._pending_bytes = 0
        self._unwritten_bytes = 0
        self._message_bytes_max = 0
        self._news = asyncio.Event()

    @property
    def pending_bytes(self) -> int:
        """Bytes sent and not yet confirmed."""
        return self._pending_bytes

    async def open_when_free(self, seconds_max: float) -> None:
        """Open it, waiting up to `seconds_max` while another producer has the name. Raises ClientError."""
        loop = asyncio.get_running_loop()
        deadline, pauses = loop.time() + seconds_max, BackOff(most_s=RETRY_S_MAX)
        told = False
        while True:
            try:
                await self._session.open()
                self._parts.residents.add(self)
                return
            except NameBusy as busy:
                pause_s = pauses.next_s()
                if loop.time() + pause_s > deadline:
                    raise
                if not told:
                    log.info(
                        "waiting for a producer name", topic=self.topic, name=self.name, reason=str(busy)
                    )
                    told = True
            await asyncio.sleep(pause_s)

    async def send(self, entry: OutgoingEntry) -> None:
        """Publish, waiting while too many bytes are in flight. Raises ClientError, BadRow."""
        while self._pending and (
            self._pending_bytes >= PENDING_BYTES_MAX or len(self._pending) >= PENDING_ENTRIES_MAX
        ):
            await self._wait()
        self._session.check()
        frame = self._frame(entry)
        self._pending.add(PendingEntry(entry.sequence_ids[0], frame, [None], len(frame), 0.0))
        self._pending_bytes += len(frame)
        connection = self._session.connection
        if connection is None:
            return
        connection.write(frame)
        self._unwritten_bytes += len(frame)
        if self._unwritten_bytes >= UNWRITTEN_BYTES_MAX:
            self._unwritten_bytes = 0
            await asyncio.sleep(0)
            await connection.writable()

    async def flushed(self) -> None:
        """Wait until everything is durable. Raises ClientError."""
        while self._pending:
            await self._wait()
        self._session.check()

    async def close(self) -> None:
        """Close the producer; messages that are not durable yet may be lost, see `flushed`. Idempotent; the
        client does so when it closes.
        """
        self._parts.residents.discard(self)
        await self._session.close()
        connection = self._session.take_connection()
        if connection is None:
            return
        close = CommandCloseProducer(producer_id=self._id, request_id=0)
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close)
        try:
            await connection.request(command, self.topic, self._parts.options.operation_timeout_s)
        except ClientError:
            pass  # It ends with its connection.
        finally:
            self.detach(connection)

    # For the connection

    def on_receipt(self, sequence_id: int, message_id: MessageIdData) -> None:
        self._confirm(sequence_id, message_id.ledgerId, message_id.entryId)

    def on_receipts(self, receipts: Receipts) -> None:
        for number in range(receipts.count):
            entry_id = receipts.first_entry_id + number
            self._confirm(receipts.first_sequence_id + number, receipts.ledger_id, entry_id)

    def _confirm(self, sequence_id: int, ledger_id: int, entry_id: int) -> None:
        entry = self._pending.confirm(sequence_id, ledger_id, entry_id)
        if entry is not None:  # Otherwise of an entry that was sent twice.
            self._pending_bytes -= entry.byte_length
            self._news.set()

    def on_send_error(self, error: CommandSendError) -> None:
        refused = refusal(error.error, error.message, self.topic)
        if refused.may_pass:
            self.on_closed(refused, "")
        else:
            self._session.fail(refused)

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        """Reconnects, unless messages could be stored twice by that."""
        if self._txn is not None and not self._deduplicated and self._pending:
            self._session.fail(InterruptedInTransaction(f"{self.topic}: {reason}. {_IN_DOUBT}"))
        self._session.lost(reason, assigned_url)

    # For the session

    async def attach(self, connection: Connection) -> None:
        connection.producers[self._id] = self
        command = CommandProducer(
            topic=self.topic,
            producer_id=self._id,
            request_id=0,
            epoch=self._session.opened,
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
                self._parts.options.operation_timeout_s,
            )
        except ProducerBusy as busy:
            raise NameBusy(
                f"{busy}. An earlier attempt of this task still has the name {self.name!r}, or another query "
                "has the same query.id"
            ) from busy
        except Refused as refused:
            if NOT_DEDUPLICATED in refused.reason:
                raise NotDeduplicated(f"{self.topic}: {WITHOUT_DEDUPLICATION}") from refused
            raise
        opened = answer.producer_success
        self._schema_version = opened.schema_version if self._schema is not None else b""
        if not self._session.opened:
            self.last_sequence_id = opened.last_sequence_id
        self._message_bytes_max = connection.message_bytes_max
        for frame in self._pending.frames():
            connection.write(frame)

    def detach(self, connection: Connection) -> None:
        connection.producers.pop(self._id, None)

    def on_failed(self, error: ClientError) -> None:
        self._news.set()

    def _frame(self, entry: OutgoingEntry) -> bytes:
        """Raises BadRow for a message that is larger than the broker takes."""
        rows, sequence_ids, now_ms = entry.rows, entry.sequence_ids, int(time.time() * 1_000)
        first = self._message(rows[0])
        if len(rows) == 1:
            frame = self._encoder.single(first, sequence_ids[0], now_ms)
        else:
            key = rows[0].key, rows[0].key_is_base64
            if any((row.key, row.key_is_base64) != key for row in rows):
                first.key = first.ordering_key = None
            parts = batch_parts(entry)
            frame = self._encoder.batch(parts, first, sequence_ids[0], sequence_ids[-1], now_ms)
        if len(frame) > self._message_bytes_max:
            self._check_size(frame)
        return frame

    def _message(self, row: OutgoingRow) -> Outgoing:
        return Outgoing(
            row.payload,
            row.key,
            dict(row.properties),
            row.event_time_ms,
            row.ordering_key or None,
            row.deliver_at_ms,
            row.key_is_base64,
            row.null_value,
            txn=self._txn,
            schema_version=self._schema_version,
        )

    def _check_size(self, frame: bytes) -> None:
        _, command_bytes = SIZES.unpack_from(frame)
        entry_at = SIZES.size + command_bytes
        _, _, metadata_bytes = ENTRY_HEADER.unpack_from(frame, entry_at)
        payload_bytes = len(frame) - entry_at - ENTRY_HEADER_BYTES - metadata_bytes
        most = self._message_bytes_max
        if payload_bytes > most or payload_bytes + metadata_bytes > most + METADATA_BYTES_MAX:
            raise BadRow(
                f"a row of {payload_bytes} bytes, with {metadata_bytes} of metadata: {self.topic} takes "
                f"at most {most}, and with metadata {most + METADATA_BYTES_MAX}. Write smaller rows, set "
                "batch.bytes.max lower, or raise maxMessageSize of the brokers"
            )

    async def _wait(self) -> None:
        """Wait for the next confirmation. Raises ClientError when none will come."""
        self._session.check()
        self._news.clear()
        await self._news.wait()
