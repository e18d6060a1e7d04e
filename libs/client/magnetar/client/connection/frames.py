"""Frames that a broker sends, cut out of the byte stream: commands, each with its entry. No I/O.

Most frames are deliveries of entries that follow one another. The command of the next one is known before it
comes, so that a comparison of its bytes does instead of parsing them, which takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError
from magnetar.common.errors import MalformedFrame
from magnetar.common.wire.checksum import crc32c_from
from magnetar.common.wire.chunk_buffer import ChunkBuffer
from magnetar.common.wire.frame import (
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    MAGIC_CHECKSUM,
    MAGIC_ENTRY_METADATA,
    SIZES,
    check_sizes,
)
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.common.wire.varint import encode_varint

_NO_ACK_SET: Sequence[int] = ()


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
    body: bytes
    """What follows the command."""


class FrameReader:
    """Cuts one connection's bytes into frames."""

    __slots__ = ("_after", "_before", "_buffer", "_expected", "_frame_bytes_max", "_last")

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = ChunkBuffer()
        self._frame_bytes_max = frame_bytes_max
        self._expected = b""
        """The command of the delivery that follows the last one; its fields but the entry are those of it."""
        self._before = b""
        self._after = b""
        self._last = Delivery(0, 0, 0, 0, (), -1, b"")

    def receive_data(self, data: bytes) -> list[Delivery | BaseCommand]:
        """Returns the frames that `data` completes, in their order.

        Raises FrameTooLarge, MalformedFrame; the reader is then unusable.
        """
        buffer = self._buffer.add(data)
        frames: list[Delivery | BaseCommand] = []
        position, end, needed = 0, len(buffer), 8
        sizes_at, limit = SIZES.unpack_from, self._frame_bytes_max
        while end - position >= 8:
            total_size, command_size = sizes_at(buffer, position)
            frame_end = position + 4 + total_size
            if total_size + 4 > limit or not 4 < command_size + 4 <= total_size:
                check_sizes(total_size, command_size, limit)
            if frame_end > end:
                needed = 4 + total_size
                break
            start = position + 8
            command_end = start + command_size
            encoded = buffer[start:command_end]
            if encoded == self._expected:
                frames.append(self._next(buffer[command_end:frame_end]))
            else:
                frames.append(self._parsed(encoded, buffer[command_end:frame_end]))
            position = frame_end
        self._buffer.keep(buffer[position:], needed)
        return frames

    def _next(self, body: bytes) -> Delivery:
        """Returns the delivery that was expected, and expects the next one."""
        consumer_id, ledger_id, entry_id, redelivery_count, ack_set, epoch, _ = self._last
        entry_id += 1
        self._last = found = Delivery(
            consumer_id, ledger_id, entry_id, redelivery_count, ack_set, epoch, body
        )
        self._expected = self._before + encode_varint(entry_id + 1) + self._after
        return found

    def _parsed(self, encoded: bytes, body: bytes) -> Delivery | BaseCommand:
        """Parses a command. Raises MalformedFrame."""
        try:
            command = BaseCommand.FromString(encoded)
        except DecodeError as error:
            raise MalformedFrame(f"a command of {len(encoded)} bytes is no protobuf message") from error
        if command.type != BaseCommand.MESSAGE:
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
            body,
        )
        self._expect_after(encoded, found)
        return found

    def _expect_after(self, encoded: bytes, found: Delivery) -> None:
        """Learns the bytes around the entry's id: only where the next id is as long as this one."""
        self._expected = b""
        entry = encode_varint(found.entry_id)
        next_entry = encode_varint(found.entry_id + 1)
        ledger = b"\x08" + encode_varint(found.ledger_id) + b"\x10"
        at = encoded.find(ledger + entry)
        if found.ack_set or at < 0 or len(entry) != len(next_entry):
            return
        at += len(ledger)
        self._before, self._after = encoded[:at], encoded[at + len(entry) :]
        expected = self._before + next_entry + self._after
        # The bytes that were found may be another field's: only what parses as the next delivery is expected.
        message = BaseCommand.FromString(expected).message
        if (
            message.message_id.entryId == found.entry_id + 1
            and message.message_id.ledgerId == found.ledger_id
        ):
            self._expected, self._last = expected, found


def split_entry(body: bytes) -> tuple[bytes, int, int]:
    """Returns what follows a Message command as (serialized BrokerEntryMetadata or b"", offset of the entry's
    metadata, offset of its payload). Verifies the checksum if there is one. Raises MalformedFrame.
    """
    start, broker_metadata = 0, b""
    if body[:2] == MAGIC_ENTRY_METADATA:
        start = 6 + int.from_bytes(body[2:6], "big")
        broker_metadata = body[6:start]
    if body[start : start + 2] == MAGIC_CHECKSUM and len(body) >= start + ENTRY_HEADER_BYTES:
        _, crc, metadata_size = ENTRY_HEADER.unpack_from(body, start)
        if crc32c_from(body, start + 6) != crc:
            raise MalformedFrame(f"the CRC32-C of an entry of {len(body) - start} bytes does not match")
        metadata_at = start + ENTRY_HEADER_BYTES
    else:
        metadata_size = int.from_bytes(body[start : start + 4], "big")
        metadata_at = start + 4
    payload_at = metadata_at + metadata_size
    if payload_at > len(body):
        raise MalformedFrame(f"metadata of {metadata_size} bytes in an entry of {len(body) - start}")
    return broker_metadata, metadata_at, payload_at
