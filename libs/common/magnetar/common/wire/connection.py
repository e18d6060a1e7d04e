"""The broker's side of a client connection, without I/O: bytes in, events out.

for event in connection.receive_data(data):
    ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from magnetar.common.errors import ProtocolError
from magnetar.common.wire.ack_group_parser import parse_ack_group
from magnetar.common.wire.ack_parser import ACK_PREFIX, parse_acks
from magnetar.common.wire.chunk_buffer import ChunkBuffer
from magnetar.common.wire.command_parser import parse_command
from magnetar.common.wire.events import Command, Event
from magnetar.common.wire.frame import FRAME_PADDING_BYTES, MESSAGE_BYTES_MAX, SIZES, check_sizes
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.common.wire.send_parser import parse_sends, send_of, take_send


class ServerConnection:
    """Divides a client's bytes into events; independent of producers, consumers and sockets."""

    __slots__ = ("_buffer", "_error", "_frame_bytes_max", "_message_bytes_max")

    def __init__(self, max_message_size: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = max_message_size
        self._frame_bytes_max = max_message_size + FRAME_PADDING_BYTES
        self._buffer = ChunkBuffer()
        self._error: ProtocolError | None = None

    def limit_frames(self, frame_bytes_max: int | None) -> None:
        """Accept frames of at most so many bytes from the next `receive_data` on; None: as at the start."""
        self._frame_bytes_max = frame_bytes_max or self._message_bytes_max + FRAME_PADDING_BYTES

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes of an incomplete frame."""
        return self._buffer.size

    def receive_data(self, data: bytes) -> Iterable[Event]:
        """Yields the events of all frames that `data` completes, in wire order; iterate once.

        After a protocol violation, iterating raises a ProtocolError (UnknownCommand, MalformedFrame,
        FrameTooLarge) after the earlier events; so does every later call. Keeps no reference to `data` or its
        parts beyond the incomplete frame.
        """
        events: list[Event] = []
        if self._error is None:
            try:
                self._parse(self._buffer.add(data), events)
            except ProtocolError as error:
                self._error = error
        if self._error is not None:
            return _raise_after(events, self._error)
        return events

    def _parse(self, buffer: bytes, events: list[Event]) -> None:
        position, end, needed = 0, len(buffer), SIZES.size
        while end - position >= SIZES.size:
            position = parse_sends(
                buffer, position, end, self._message_bytes_max, self._frame_bytes_max, events
            )
            position = parse_acks(buffer, position, end, events)
            if end - position < SIZES.size:
                break
            total_size, command_size = SIZES.unpack_from(buffer, position)
            check_sizes(total_size, command_size, self._frame_bytes_max)
            frame_end = position + 4 + total_size
            if frame_end > end:
                needed = 4 + total_size
                break
            start = position + SIZES.size
            encoded = buffer[start : start + command_size]
            if encoded.startswith(ACK_PREFIX) and parse_ack_group(encoded, events):
                position = frame_end
                continue
            command = parse_command(encoded)
            if command.type == BaseCommand.SEND:
                body = buffer[start + command_size : frame_end]
                take_send(send_of(command.send), body, self._message_bytes_max, events)
            else:
                events.append(Command(command))
            position = frame_end
        self._buffer.keep(buffer[position:], needed)


def _raise_after(events: list[Event], error: ProtocolError) -> Iterator[Event]:
    yield from events
    raise error
