"""Meaning of a client's bytes: the events of ServerConnection, in the order of the wire."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from magnetar.common.wire.varint import decode_varint


@dataclass(slots=True, eq=False)
class SendRun:
    """Consecutive Sends of one producer that arrived together: its entries will be stored as one run.

    Every checksum was verified. Chunks and markers form runs of their own.
    """

    producer_id: int

    entries: list[bytes]
    """The stored and delivered form: magic, CRC32-C, metadata size, metadata, payload."""

    sequence_varints: list[bytes]
    """Sequence ids by entry, still as varints: receipts copy them, so decoding would be work for nobody.
    `sequence_id(i)` decodes one."""

    highest_varints: list[bytes] | None
    """highest_sequence_id by entry, as varints, b"" where not given; None when no Send gave one."""

    message_counts: list[int] | None
    """Send.num_messages by entry (1 to BATCH_MESSAGES_MAX, otherwise the client's word); None when all
    are 1."""

    is_chunk: bool
    marker: bool

    byte_length: int
    """Total of all entries."""

    def sequence_id(self, index: int) -> int:
        return decode_varint(self.sequence_varints[index])

    def sequence_ids(self) -> list[int]:
        return [decode_varint(varint) for varint in self.sequence_varints]

    def highest_sequence_id(self, index: int) -> int:
        """The last sequence id of that entry: of a batch what the Send says, else its only one."""
        sequence_id = decode_varint(self.sequence_varints[index])
        if self.highest_varints is None:
            return sequence_id
        return max(sequence_id, decode_varint(self.highest_varints[index]))


@dataclass(slots=True, eq=False)
class AckRun:
    """Consecutive individual Acks of one consumer, of whole entries of one ledger, that nobody waits for."""

    consumer_id: int
    ledger_id: int
    entry_ids: list[int]
    """In the order of the wire; may hold an id twice."""


@dataclass(slots=True, eq=False)
class AckGroup:
    """One individual Ack of whole entries."""

    consumer_id: int
    entry_ids: dict[int, array[int]]
    """By ledger, in any order; may hold an id twice."""

    request_id: int | None
    """Not None: answered by AckResponse once it is durable."""


@dataclass(frozen=True, slots=True)
class SendRejected:
    """One Send that is not stored; the client is told, and the connection lives on."""

    producer_id: int
    sequence_id: int
    """The highest of a batch."""
    error: ServerError.ValueType
    message: str


@dataclass(frozen=True, slots=True)
class SendUnsupported(SendRejected):
    """One Send that uses what there is not: transactions, message ids of its own, batches beyond bounds."""


@dataclass(slots=True)
class Command:
    """Anything but a Send or a plain Ack. Its required fields are there; see command_parser."""

    base_command: BaseCommand


Event = SendRun | AckRun | AckGroup | SendRejected | Command
