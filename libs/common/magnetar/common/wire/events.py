"""Events of a ServerConnection, which represent a client's frames in wire order."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.common.wire.varint import decode_varint


@dataclass(slots=True, eq=False)
class SendRun:
    """Consecutive Sends of one producer that arrived together: its entries are stored as one run.

    Every checksum was verified. Chunks and markers form runs of their own.
    """

    producer_id: int

    entries: list[bytes]
    """The stored and delivered form: magic, CRC32-C, metadata size, metadata, payload."""

    sequence_varints: list[bytes]
    """Sequence ids by entry, as varints: receipts copy them, so decoding would be wasted. `sequence_id(i)`
    decodes one.
    """

    highest_varints: list[bytes] | None
    """highest_sequence_id by entry, as varints, b"" if absent; None if no Send has one."""

    message_counts: list[int] | None
    """Send.num_messages by entry (1 to BATCH_MESSAGES_MAX, otherwise unverified); None if all are 1."""

    is_chunk: bool
    marker: bool

    byte_length: int
    """Total bytes of all entries."""

    def sequence_id(self, index: int) -> int:
        return decode_varint(self.sequence_varints[index])

    def sequence_ids(self) -> list[int]:
        return [decode_varint(varint) for varint in self.sequence_varints]

    def highest_sequence_id(self, index: int) -> int:
        """Returns the last sequence id of that entry: for a batch the Send's highest one, otherwise its only
        one.
        """
        sequence_id = decode_varint(self.sequence_varints[index])
        if self.highest_varints is None:
            return sequence_id
        return max(sequence_id, decode_varint(self.highest_varints[index]))


@dataclass(slots=True, eq=False)
class TransactionalSends:
    """A run of Sends that are all in the same transaction."""

    txn: TxnId
    sends: SendRun


@dataclass(slots=True, eq=False)
class AckRun:
    """Consecutive individual Acks of one consumer, of whole entries of one ledger, without request ids."""

    consumer_id: int
    ledger_id: int
    entry_ids: list[int]
    """Entry ids in wire order; may contain duplicates."""


@dataclass(slots=True, eq=False)
class AckGroup:
    """One individual Ack of whole entries."""

    consumer_id: int
    entry_ids: dict[int, array[int]]
    """Entry ids by ledger, in any order; may contain duplicates."""

    request_id: int | None
    """None: not answered. Otherwise answered by AckResponse once it is durable."""


@dataclass(slots=True, eq=False)
class TransactionalAcks:
    """Consecutive individual Acks of one consumer, of whole entries, in the same transaction.

    Each command takes effect, or fails, by itself.
    """

    txn: TxnId
    consumer_id: int
    entry_ids: dict[int, array[int]]
    """Entry ids by ledger, in any order; may contain duplicates."""
    request_ids: list[int]
    """Request ids of the commands that have one."""
    commands: list[bytes]
    """The encoded commands."""


@dataclass(frozen=True, slots=True)
class SendRejected:
    """One Send that is not stored; the client gets an error, and the connection stays open."""

    producer_id: int
    sequence_id: int
    """The sequence id; for a batch the highest."""
    error: ServerError.ValueType
    message: str


@dataclass(frozen=True, slots=True)
class SendUnsupported(SendRejected):
    """One Send that uses an unsupported feature: explicit message ids, oversized batches, half of a
    transaction id.
    """


@dataclass(slots=True)
class Command:
    """Any command but a Send or a plain Ack. Its required fields are present; see command_parser."""

    base_command: BaseCommand


Event = SendRun | TransactionalSends | AckRun | AckGroup | TransactionalAcks | SendRejected | Command
