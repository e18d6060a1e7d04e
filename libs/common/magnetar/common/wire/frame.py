"""Frames: how commands are cut out of the byte stream, and put into it.

    simple frame    totalSize(4) commandSize(4) BaseCommand
    payload frame   totalSize(4) commandSize(4) BaseCommand [0x0e02 size(4) BrokerEntryMetadata] entry
    entry           0x0e01 CRC32-C(4) metadataSize(4) MessageMetadata payload

Numbers are big-endian. totalSize counts all after itself; the CRC covers all after itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from magnetar.common.errors import ChecksumMismatch, FrameTooLarge, MalformedFrame
from magnetar.common.wire.checksum import crc32c_from
from magnetar.common.wire.chunk_buffer import ChunkBuffer
from magnetar.common.wire.command_parser import parse_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand

MESSAGE_BYTES_MAX: Final = 5_242_880
"""Default limit of a message's payload."""

FRAME_PADDING_BYTES: Final = 10_240
"""Bytes by which a frame may exceed the largest payload: header, command and metadata."""

BATCH_MESSAGES_MAX: Final = 1 << 20
"""Maximum messages in a batch, above the number that fits uncompressed into a frame of that size. Limited
because the broker keeps a bit for each message of a batch.
"""

MAGIC_CHECKSUM: Final = b"\x0e\x01"
MAGIC_ENTRY_METADATA: Final = b"\x0e\x02"
ENTRY_HEADER_BYTES: Final = 10
"""Size of an entry's header: magic, CRC, metadata size."""

_TLS_HANDSHAKE: Final = b"\x16\x03"
_TLS_ALERT: Final = b"\x15\x03"
_HTTP_ANSWER: Final = b"HTTP"
_HTTP_METHODS: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC"})

SIZES: Final = Struct(">II")
ENTRY_HEADER: Final = Struct(">2sII")


def encode_command(command: BaseCommand) -> bytes:
    """Encodes a command as a simple frame."""
    encoded = command.SerializeToString()
    return SIZES.pack(len(encoded) + 4, len(encoded)) + encoded


def encode_entry(metadata: bytes, payload: bytes) -> bytes:
    """Encodes an entry of serialized MessageMetadata and payload, with its checksum."""
    return with_checksum(len(metadata).to_bytes(4, "big") + metadata + payload)


def encode_payload_command(command: BaseCommand, entry: bytes) -> bytes:
    """Encodes a Send or Message as a payload frame."""
    encoded = command.SerializeToString()
    return SIZES.pack(len(encoded) + 4 + len(entry), len(encoded)) + encoded + entry


def with_checksum(body: bytes) -> bytes:
    """Returns the entry of a body (metadata size, metadata, payload) that has no checksum."""
    return MAGIC_CHECKSUM + crc32c_from(body, 0).to_bytes(4, "big") + body


def check_sizes(total_size: int, command_size: int, frame_bytes_max: int) -> None:
    """Checks a frame's sizes by its first eight bytes, before anything is buffered. Raises FrameTooLarge,
    MalformedFrame.
    """
    if total_size + 4 > frame_bytes_max:
        raise FrameTooLarge(
            f"a frame of {total_size + 4} bytes, at most {frame_bytes_max} are accepted{_hint(total_size)}"
        )
    if command_size + 4 > total_size:
        raise MalformedFrame(f"a command of {command_size} bytes in a frame with totalSize {total_size}")
    if command_size == 0:
        raise MalformedFrame("a frame without command")


def _hint(total_size: int) -> str:
    """Names the protocol whose first bytes were read as a frame's size; "" when it is none known."""
    first = total_size.to_bytes(4, "big")
    if first[:2] == _TLS_HANDSHAKE:
        return "; this looks like TLS: use pulsar://, or the TLS port"
    if first in _HTTP_METHODS:
        return "; this looks like HTTP: use the port of HTTP"
    if first == _HTTP_ANSWER:
        return "; this looks like an HTTP server: use the port of Pulsar's protocol, usually 6650"
    if first[:2] == _TLS_ALERT:
        return "; this looks like a TLS port: use pulsar+ssl://, or the port without TLS"
    return ""


def strip_entry_metadata(body: bytes) -> tuple[bytes, bytes]:
    """Splits the bytes after a command in a payload frame into (BrokerEntryMetadata or b"", the entry)."""
    if body[:2] != MAGIC_ENTRY_METADATA:
        return b"", body
    size = int.from_bytes(body[2:6], "big")
    if len(body) < 6 + size:
        raise MalformedFrame(f"{size} bytes of broker entry metadata announced in {len(body)}")
    return body[6 : 6 + size], body[6 + size :]


def checked_entry(body: bytes) -> bytes:
    """Verifies the bytes after a command (and broker entry metadata) and returns them as an entry.

    Adds the checksum if the sender omitted it. Raises ChecksumMismatch, or MalformedFrame if the metadata
    does not fit.
    """
    if body[:2] == MAGIC_CHECKSUM:
        if len(body) < ENTRY_HEADER_BYTES:
            raise MalformedFrame(f"an entry of {len(body)} bytes")
        _, crc, metadata_size = ENTRY_HEADER.unpack_from(body)
        if crc32c_from(body, 6) != crc:
            raise ChecksumMismatch(f"the CRC32-C of an entry of {len(body)} bytes does not match its bytes")
        metadata_room = len(body) - ENTRY_HEADER_BYTES
    else:
        if len(body) < 4:
            raise MalformedFrame(f"a payload frame with {len(body)} bytes after its command")
        metadata_size = int.from_bytes(body[:4], "big")
        metadata_room = len(body) - 4
        body = with_checksum(body) if metadata_size <= metadata_room else body
    if metadata_size > metadata_room:
        raise MalformedFrame(f"message metadata of {metadata_size} bytes where {metadata_room} are left")
    return body


@dataclass(frozen=True, slots=True)
class Frame:
    """One received frame; `entry` and `entry_metadata` are empty in simple frames."""

    command: BaseCommand
    entry: bytes = b""
    entry_metadata: bytes = b""
    """Serialized BrokerEntryMetadata."""


class FrameDecoder:
    """Decodes frames from arbitrary chunks, verifying each: for clients and tools (brokers use
    ServerConnection).
    """

    __slots__ = ("_buffer", "_frame_bytes_max")

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._buffer = ChunkBuffer()
        self._frame_bytes_max = message_bytes_max + FRAME_PADDING_BYTES

    def receive_data(self, data: bytes) -> list[Frame]:
        """Returns the frames that `data` completes. Raises ProtocolError; the decoder is then unusable."""
        buffer = self._buffer.add(data)
        frames: list[Frame] = []
        position, end, needed = 0, len(buffer), SIZES.size
        while end - position >= SIZES.size:
            total_size, command_size = SIZES.unpack_from(buffer, position)
            check_sizes(total_size, command_size, self._frame_bytes_max)
            frame_end = position + 4 + total_size
            if frame_end > end:
                needed = 4 + total_size
                break
            frames.append(_parse_frame(buffer[position + SIZES.size : frame_end], command_size))
            position = frame_end
        self._buffer.keep(buffer[position:], needed)
        return frames


def _parse_frame(frame: bytes, command_size: int) -> Frame:
    command = parse_command(frame[:command_size])
    if len(frame) == command_size:
        return Frame(command)
    entry_metadata, body = strip_entry_metadata(frame[command_size:])
    return Frame(command, checked_entry(body), entry_metadata)
