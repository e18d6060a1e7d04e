"""Frames that a broker sends, cut out of the byte stream: commands, each with its entry. No I/O.

Most frames are deliveries of entries that follow one another. The command of the next one is known before it
comes, so that a comparison of its bytes does instead of parsing them, which takes ten times as long. Such
deliveries are handed on together, as a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from magnetar.common.errors import MalformedFrame
from magnetar.common.wire.checksum import crc32c, crc32c_from
from magnetar.common.wire.chunk_buffer import ChunkBuffer
from magnetar.common.wire.frame import (
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    MAGIC_CHECKSUM,
    MAGIC_ENTRY_METADATA,
    SIZES,
    check_sizes,
)
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandSendReceipt
from magnetar.common.wire.varint import BLOCK, BLOCK_BITS, LOW, SHORT, encode_varint

_NO_ACK_SET: Sequence[int] = ()
_LOWEST: Final = BLOCK - 1
_ENTRY_ID_MAX: Final = 1 << 62
"""Above it are the ids of topics that store nothing."""


class Entry(NamedTuple):
    """The part of a frame that follows a Message command."""

    metadata: bytes
    """Serialized MessageMetadata."""
    payload: bytes
    broker_metadata: bytes = b""
    """Serialized BrokerEntryMetadata, if the broker adds it."""
    problem: str = ""
    """Why it cannot be used, such as a wrong checksum."""


class Delivery(NamedTuple):
    """A Message command with its entry."""

    consumer_id: int
    ledger_id: int
    entry_id: int
    redelivery_count: int
    ack_set: Sequence[int]
    """The wire's words; empty if nothing of a batch is acknowledged."""
    epoch: int
    """The consumer's epoch for which it was sent; -1 for none."""
    entry: Entry


@dataclass(slots=True)
class Run:
    """Deliveries to one consumer of entries that follow one another in a ledger, none delivered before."""

    consumer_id: int
    ledger_id: int
    first_entry_id: int
    epoch: int
    """The consumer's epoch for which they were sent; -1 for none."""
    entries: list[tuple[bytes, bytes]]
    """Serialized MessageMetadata and payload of each; their checksums are verified."""

    def deliveries(self, start: int = 0) -> Iterator[Delivery]:
        """Yields the deliveries one by one, from a number on."""
        for number in range(start, len(self.entries)):
            entry = Entry(*self.entries[number])
            entry_id = self.first_entry_id + number
            yield Delivery(self.consumer_id, self.ledger_id, entry_id, 0, (), self.epoch, entry)


@dataclass(slots=True)
class Receipts:
    """Receipts of one producer for entries that follow one another, by sequence id and in the ledger."""

    producer_id: int
    first_sequence_id: int
    ledger_id: int
    first_entry_id: int
    count: int


class FrameReader:
    """Cuts one connection's bytes into frames."""

    __slots__ = ("_buffer", "_expectation", "_frame_bytes_max", "_receipt")

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = ChunkBuffer()
        self._frame_bytes_max = frame_bytes_max
        self._expectation: _Expectation | None = None
        self._receipt: _ReceiptExpectation | None = None

    def receive_data(self, data: bytes) -> list[Delivery | Run | Receipts | BaseCommand]:
        """Returns the frames that `data` completes, in their order.

        Raises FrameTooLarge, MalformedFrame; the reader is then unusable.
        """
        buffer = self._buffer.add(data)
        frames: list[Delivery | Run | Receipts | BaseCommand] = []
        position, end, needed = 0, len(buffer), 8
        sizes_at, limit = SIZES.unpack_from, self._frame_bytes_max
        while end - position >= 8:
            if self._expectation is not None:
                run, position = self._expectation.run(buffer, position, end)
                if run is not None:
                    frames.append(run)
                    if end - position < 8:
                        break
            if self._receipt is not None:
                receipts, position = self._receipt.run(buffer, position)
                if receipts is not None:
                    frames.append(receipts)
                    if end - position < 8:
                        break
            total_size, command_size = sizes_at(buffer, position)
            frame_end = position + 4 + total_size
            if total_size + 4 > limit or not 4 < command_size + 4 <= total_size:
                check_sizes(total_size, command_size, limit)
            if frame_end > end:
                needed = 4 + total_size
                break
            command_end = position + 8 + command_size
            frames.append(self._parsed(buffer[position + 8 : command_end], buffer[command_end:frame_end]))
            position = frame_end
        self._buffer.keep(buffer[position:], needed)
        return frames

    def _parsed(self, encoded: bytes, body: bytes) -> Delivery | BaseCommand:
        """Parses a command. Raises MalformedFrame."""
        try:
            command = BaseCommand.FromString(encoded)
        except DecodeError as error:
            raise MalformedFrame(f"a command of {len(encoded)} bytes is no protobuf message") from error
        if command.type != BaseCommand.MESSAGE:
            if command.type == BaseCommand.SEND_RECEIPT:
                self._receipt = _receipt_after(encoded, command)
            return command
        message = command.message
        at = message.message_id
        found = Delivery(
            message.consumer_id,
            at.ledgerId,
            at.entryId,
            message.redelivery_count,
            tuple(message.ack_set) if message.ack_set else _NO_ACK_SET,
            message.consumer_epoch if message.HasField("consumer_epoch") else -1,
            parse_entry(body),
        )
        self._expectation = None
        if not found.ack_set and not found.redelivery_count:
            self._expectation = _expectation_after(encoded, found)
        return found


class _Expectation:
    """The frame of the delivery that follows the last one, but for what its entry holds."""

    __slots__ = ("_after", "_before", "_entry_id", "_epoch", "_header", "_ids", "_table")

    def __init__(self, before: bytes, after: bytes, last: Delivery) -> None:
        """`before` and `after` are the bytes of the command around the entry's id."""
        entry_id = last.entry_id + 1
        self._ids = last.consumer_id, last.ledger_id
        self._epoch = last.epoch
        self._entry_id = entry_id
        self._before = before
        self._table = SHORT if entry_id < BLOCK else LOW
        self._after = (b"" if entry_id < BLOCK else encode_varint(entry_id >> BLOCK_BITS)) + after
        size = len(before) + len(self._table[entry_id & BLOCK - 1]) + len(self._after)
        self._header = Struct(f">II{size}s2sII")

    @property
    def command(self) -> bytes:
        """The command that is expected."""
        return self._before + self._table[self._entry_id & BLOCK - 1] + self._after

    def run(self, buffer: bytes, position: int, end: int) -> tuple[Run | None, int]:
        """Returns the deliveries at a position that are as expected, and the position after them."""
        header = self._header.unpack_from
        header_size, needed = self._header.size, end - self._header.size
        checked_at = header_size - 4
        before, after, table, entry_id = self._before, self._after, self._table, self._entry_id
        entries: list[tuple[bytes, bytes]] = []
        expected = self.command
        while position <= needed:
            total_size, _, command, magic, crc, metadata_size = header(buffer, position)
            frame_end = position + 4 + total_size
            if command != expected or magic != MAGIC_CHECKSUM or frame_end > end:
                break
            checked = buffer[position + checked_at : frame_end]
            payload_at = 4 + metadata_size
            if crc32c(checked) != crc or payload_at > len(checked):
                break  # What is wrong is told where a frame is parsed.
            entries.append((checked[4:payload_at], checked[payload_at:]))
            position = frame_end
            entry_id += 1
            expected = before + table[entry_id & _LOWEST] + after
            if not entry_id & _LOWEST:
                break  # The upper part of the id changes.
        if not entries:
            return None, position
        run = Run(*self._ids, self._entry_id, self._epoch, entries)
        self._entry_id = entry_id
        return run, position


def _expectation_after(encoded: bytes, last: Delivery) -> _Expectation | None:
    """Returns what follows a delivery; None where the next id of an entry is not as long as this one."""
    entry = encode_varint(last.entry_id)
    if len(entry) != len(encode_varint(last.entry_id + 1)) or last.entry_id >> BLOCK_BITS != (
        last.entry_id + 1 >> BLOCK_BITS
    ):
        return None
    ledger = b"\x08" + encode_varint(last.ledger_id) + b"\x10"
    at = encoded.find(ledger + entry)
    if at < 0:
        return None
    at += len(ledger)
    found = _Expectation(encoded[:at], encoded[at + len(entry) :], last)
    # The bytes that were found may be those of another field: only what parses as the next one is expected.
    message = BaseCommand.FromString(found.command).message
    next_one = message.message_id.ledgerId, message.message_id.entryId
    return found if next_one == (last.ledger_id, last.entry_id + 1) else None


class _ReceiptExpectation:
    """The frame of the receipt that follows the last one: both its ids are larger by one."""

    __slots__ = ("_after", "_before", "_between", "_entry", "_entry_id", "_ids", "_sequence", "_sequence_id")

    def __init__(self, frame: tuple[bytes, bytes, bytes], receipt: CommandSendReceipt) -> None:
        """`frame` is what is before, between and after the two ids."""
        self._before, self._between, self._after = frame
        self._ids = receipt.producer_id, receipt.message_id.ledgerId
        self._sequence_id = receipt.sequence_id + 1
        self._entry_id = receipt.message_id.entryId + 1
        self._sequence = _table(self._sequence_id)
        self._entry = _table(self._entry_id)

    @property
    def frame(self) -> bytes:
        """The frame that is expected."""
        sequence_id, entry_id = self._sequence_id, self._entry_id
        (sequences, sequence_end), (entries, entry_end) = self._sequence, self._entry
        sequence = sequences[sequence_id & _LOWEST] + sequence_end
        return self._before + sequence + self._between + entries[entry_id & _LOWEST] + entry_end + self._after

    def run(self, buffer: bytes, position: int) -> tuple[Receipts | None, int]:
        """Returns the receipts at a position that are as expected, and the position after them."""
        expected = self.frame
        if not buffer.startswith(expected, position):
            return None, position
        (sequences, sequence_end), (entries, entry_end) = self._sequence, self._entry
        before, between, after = self._before, sequence_end + self._between, entry_end + self._after
        first_sequence_id, first_entry_id = sequence_id, entry_id = self._sequence_id, self._entry_id
        size = len(expected)
        while buffer.startswith(expected, position):
            position += size
            sequence_id += 1
            entry_id += 1
            low_sequence, low_entry = sequence_id & _LOWEST, entry_id & _LOWEST
            if not low_sequence or not low_entry:
                break  # The upper part of an id changes: the next receipt is parsed.
            expected = before + sequences[low_sequence] + between + entries[low_entry] + after
        self._sequence_id, self._entry_id = sequence_id, entry_id
        self._sequence, self._entry = _table(sequence_id), _table(entry_id)
        producer_id, ledger_id = self._ids
        count = sequence_id - first_sequence_id
        return Receipts(producer_id, first_sequence_id, ledger_id, first_entry_id, count), position


def _table(number: int) -> tuple[list[bytes], bytes]:
    """Returns the varints of a number and its neighbors: a table for the lowest bits, and what follows."""
    return (SHORT, b"") if number < BLOCK else (LOW, encode_varint(number >> BLOCK_BITS))


def _receipt_after(encoded: bytes, command: BaseCommand) -> _ReceiptExpectation | None:
    """Returns what follows a receipt; None where it has not the form that brokers give it."""
    receipt = command.send_receipt
    at = receipt.message_id
    if at.entryId >= _ENTRY_ID_MAX:
        return None
    begin = b"\x08" + encode_varint(receipt.producer_id) + b"\x10"
    sequence, entry = encode_varint(receipt.sequence_id), encode_varint(at.entryId)
    ledger = b"\x08" + encode_varint(at.ledgerId) + b"\x10"
    sequence_at = encoded.find(begin + sequence) + len(begin)
    entry_at = encoded.find(ledger + entry, sequence_at) + len(ledger)
    if sequence_at < len(begin) or entry_at < len(ledger):
        return None
    before = SIZES.pack(len(encoded) + 4, len(encoded)) + encoded[:sequence_at]
    between = encoded[sequence_at + len(sequence) : entry_at]
    found = _ReceiptExpectation((before, between, encoded[entry_at + len(entry) :]), receipt)
    # As with deliveries: only what parses as the next receipt is expected.
    expected = found.frame[8:]
    if len(expected) != len(encoded):
        return None
    following = BaseCommand.FromString(expected).send_receipt
    ids = following.sequence_id, following.message_id.ledgerId, following.message_id.entryId
    return found if ids == (receipt.sequence_id + 1, at.ledgerId, at.entryId + 1) else None


def parse_entry(body: bytes) -> Entry:
    """Splits what follows a Message command, and verifies the checksum if there is one."""
    start, broker_metadata = 0, b""
    if body[:2] == MAGIC_ENTRY_METADATA:
        start = 6 + int.from_bytes(body[2:6], "big")
        broker_metadata = body[6:start]
    if body[start : start + 2] == MAGIC_CHECKSUM and len(body) >= start + ENTRY_HEADER_BYTES:
        _, crc, metadata_size = ENTRY_HEADER.unpack_from(body, start)
        if crc32c_from(body, start + 6) != crc:
            size = len(body) - start
            return Entry(
                b"", b"", broker_metadata, f"the CRC32-C of an entry of {size} bytes does not match its bytes"
            )
        metadata_at = start + ENTRY_HEADER_BYTES
    else:
        metadata_size = int.from_bytes(body[start : start + 4], "big")
        metadata_at = start + 4
    payload_at = metadata_at + metadata_size
    if payload_at > len(body):
        problem = f"its metadata of {metadata_size} bytes does not fit into {len(body) - start} bytes"
        return Entry(b"", b"", broker_metadata, problem)
    return Entry(body[metadata_at:payload_at], body[payload_at:], broker_metadata)
