"""A decoder of single commands, without I/O, for proxies rather than brokers.

Bytes after a command remain accessible, so that the rest of a connection can be forwarded unparsed. Payloads
are skipped and their checksums not verified.
"""

from __future__ import annotations

from magnetar.common.wire.chunk_buffer import ChunkBuffer
from magnetar.common.wire.command_parser import parse_command
from magnetar.common.wire.frame import SIZES, check_sizes
from magnetar.common.wire.pulsar_pb2 import BaseCommand


class CommandStream:
    """Decodes either side's bytes into commands. Read commands until there is none, then add more bytes."""

    __slots__ = ("_buffer", "_data", "_frame_bytes_max", "_position")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = ChunkBuffer()
        self._data = b""
        self._position = 0

    def allow(self, frame_bytes_max: int) -> None:
        """Sets the longest frame from here on."""
        self._frame_bytes_max = frame_bytes_max

    def receive_data(self, data: bytes) -> None:
        """Adds received bytes; every earlier command must have been read."""
        assert not self._data, "commands are left from the bytes before"
        self._data = self._buffer.add(data)

    def next_command(self) -> BaseCommand | None:
        """Returns the next command, None if it is incomplete. Unusable after a ProtocolError."""
        data, position, needed = self._data, self._position, SIZES.size
        if len(data) - position >= SIZES.size:
            total_size, command_size = SIZES.unpack_from(data, position)
            check_sizes(total_size, command_size, self._frame_bytes_max)
            frame_end = position + 4 + total_size
            if frame_end <= len(data):
                start = position + SIZES.size
                self._position = frame_end
                return parse_command(data[start : start + command_size])
            needed = 4 + total_size
        self._buffer.keep(data[position:], needed)
        self._data, self._position = b"", 0
        return None

    def rest(self) -> bytes:
        """Returns the bytes after the last command; the stream must not be used afterwards."""
        data, self._data = self._data[self._position :], b""
        return data
