"""Message frames as they come back, and the acknowledgements they are answered with.

A frame is recognized by its fixed shape, and its message id is copied into the Ack as it stands, undecoded:

    totalSize(4) commandSize(4) | 08 09  4a length  08 consumer_id  12 length (message id) ... | entry
"""

from __future__ import annotations

import struct

from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import CONSUMER_ID, simple_frame

_SIZES = struct.Struct(">II")
_MESSAGE_PREFIX = b"\x08\x09\x4a"


class MessageSplitter:
    """Cuts a stream that arrives in arbitrary chunks into the commands of its Message frames.

    Meant for small entries: what is incomplete is copied again with each chunk. With `whole` the entry stays
    behind its command.
    """

    __slots__ = ("_rest", "_whole")

    def __init__(self, *, whole: bool = False) -> None:
        self._rest = b""
        self._whole = whole

    def feed(self, data: bytes) -> list[bytes]:
        """The commands of the Messages that are whole by now; other commands are passed over."""
        buffer = self._rest + data
        commands = []
        at, end = 0, len(buffer)
        unpack, whole = _SIZES.unpack_from, self._whole
        while end - at >= 8:
            total_size, command_size = unpack(buffer, at)
            frame_end = at + 4 + total_size
            if frame_end > end:
                break
            command = buffer[at + 8 : frame_end if whole else at + 8 + command_size]
            if command.startswith(_MESSAGE_PREFIX):
                commands.append(command)
            at = frame_end
        self._rest = buffer[at:]
        return commands


def message_id_of(command: bytes, consumer_id_bytes: int = 1) -> bytes:
    """The encoded message id in the command of a Message whose consumer id takes `consumer_id_bytes`."""
    length_at = 6 + consumer_id_bytes
    start = length_at + 1
    return command[start : start + command[length_at]]


def consumer_id_of(command: bytes) -> int:
    """The consumer id, of two bytes, in the command of a Message."""
    return command[5] & 0x7F | command[6] << 7


class AckFrames:
    """Ack frames of one consumer, one message id each, as a client sends them without grouping."""

    __slots__ = ("_ack_type", "_consumer_id", "_heads")

    def __init__(self, consumer_id: int = CONSUMER_ID, *, cumulative: bool) -> None:
        self._consumer_id = consumer_id
        self._ack_type = "Cumulative" if cumulative else "Individual"
        self._heads: dict[int, bytes] = {}

    def frame(self, message_id: bytes) -> bytes:
        """One Ack of one message."""
        head = self._heads.get(len(message_id))
        return (head or self._head(message_id)) + message_id

    def frames(self, message_ids: list[bytes]) -> bytes:
        frame = self.frame
        return b"".join([frame(message_id) for message_id in message_ids])

    def _head(self, message_id: bytes) -> bytes:
        whole = simple_frame(
            "ack",
            consumer_id=self._consumer_id,
            ack_type=self._ack_type,
            message_id=[pb.MessageIdData.FromString(message_id)],
        )
        if not whole.endswith(message_id):
            raise RuntimeError(f"an unusual encoding of a message id: {message_id.hex()}")
        head = whole[: -len(message_id)]
        self._heads[len(message_id)] = head
        return head


def grouped_acks(message_ids: list[bytes], request_id: int) -> bytes:
    """One individual Ack of many messages that asks for a receipt, as clients that group send them."""
    return simple_frame(
        "ack",
        consumer_id=CONSUMER_ID,
        ack_type="Individual",
        message_id=[pb.MessageIdData.FromString(one) for one in message_ids],
        request_id=request_id,
    )


def last_message_id(data: bytes, mark: bytes) -> bytes | None:
    """The encoded id of the last Message in `data` whose command is whole, found by its entry's `mark`."""
    end = data.rfind(mark)
    for size in range(8, min(64, end - 3)):
        if int.from_bytes(data[end - size - 4 : end - size], "big") == size:
            return message_id_of(data[end - size : end])
    return None
