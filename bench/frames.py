"""Frames for load generation: encoded once, so that the generator costs far less than the broker it measures.

All Sends of a run are equal but for the sequence id in the command; it starts at 2**21, so that its varint
has four bytes for the next 266 million messages and each frame keeps its length. The metadata and the
payload, and with them the checksum, never change. What comes back is counted by searching for bytes that
every receipt, or every message, contains exactly once.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import crc32c
from magnetar.common.wire import pulsar_pb2 as pb

FIRST_SEQUENCE_ID = 1 << 21
PRODUCER_ID = 1
CONSUMER_ID = 1
PUBLISH_TIME_MS = 1_700_000_000_000

RECEIPT_MARK = bytes([0x08, pb.BaseCommand.SEND_RECEIPT, 0x3A])
"""type = SEND_RECEIPT and the tag of its command: as every implementation orders them, once a receipt."""

_command: Any = pb.BaseCommand
_NUMBERS = {field.name: field.number for field in pb.BaseCommand.DESCRIPTOR.fields}
_LOW_BITS = 14
_LOW = [bytes([0x80 | n & 0x7F, 0x80 | n >> 7]) for n in range(1 << _LOW_BITS)]


def simple_frame(name: str, **fields: Any) -> bytes:
    """One command without payload; `name` is its field in BaseCommand."""
    command = _command(type=_NUMBERS[name], **{name: fields})
    getattr(command, name).SetInParent()
    encoded: bytes = command.SerializeToString()
    return struct.pack(">II", len(encoded) + 4, len(encoded)) + encoded


def sequence_varints(first: int, count: int) -> list[bytes]:
    """The four-byte varints of `count` sequence ids from `first`, which is 2**21 or more."""
    varints: list[bytes] = []
    while count:
        high, low = first >> _LOW_BITS, first & (1 << _LOW_BITS) - 1
        end = bytes([0x80 | high & 0x7F, high >> 7])
        lows = _LOW[low : low + count]
        varints += [start + end for start in lows]
        first += len(lows)
        count -= len(lows)
    return varints


class SendTemplate:
    """Send frames of one size: `payload_bytes` each, or batches of `batch` such messages.

    All have the partition key `key`, if any; those with `deliver_at_ms` end with it, in eight bytes.
    """

    def __init__(
        self,
        payload_bytes: int,
        batch: int = 1,
        producer_id: int = PRODUCER_ID,
        *,
        key: str | None = None,
        deliver_at_ms: int | None = None,
    ) -> None:
        payload = bytes(range(256)) * (payload_bytes // 256) + bytes(payload_bytes % 256)
        metadata = pb.MessageMetadata(
            producer_name="bench", sequence_id=FIRST_SEQUENCE_ID, publish_time=PUBLISH_TIME_MS
        )
        if key is not None:
            metadata.partition_key = key
        if deliver_at_ms is not None:
            metadata.deliver_at_time = deliver_at_ms
            payload = payload[:-8] + deliver_at_ms.to_bytes(8, "big")
        command: Any = {"producer_id": producer_id, "sequence_id": FIRST_SEQUENCE_ID}
        if batch > 1:
            single = pb.SingleMessageMetadata(payload_size=len(payload)).SerializeToString()
            payload = (struct.pack(">I", len(single)) + single + payload) * batch
            metadata.num_messages_in_batch = batch
            command["num_messages"] = batch
        header = metadata.SerializeToString()
        checked = struct.pack(">I", len(header)) + header + payload
        self.message_mark = b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(checked)) + checked[:16]
        """The bytes that each delivered message contains once: magic, checksum and the beginning of its
        metadata.
        """
        encoded = _command(type=pb.BaseCommand.SEND, send=command).SerializeToString()
        body = encoded + b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(checked)) + checked
        frame = struct.pack(">II", len(body) + 4, len(encoded)) + body
        (varint,) = sequence_varints(FIRST_SEQUENCE_ID, 1)
        self.head, self.tail = frame.split(b"\x10" + varint, 1)
        """The bytes before and after the sequence id."""
        self.head += b"\x10"
        self._between = self.tail + self.head
        self.frame_bytes = len(frame)
        self.payload_bytes = payload_bytes * batch
        self.messages = batch

    def burst(self, first: int, count: int) -> bytes:
        """`count` frames with sequence ids from `first`."""
        frames: bytes = self.head + self._between.join(sequence_varints(first, count)) + self.tail
        return frames


class Sends(Protocol):
    """Send frames to produce: of one template, of several by turns, or made as they are needed."""

    @property
    def frame_bytes(self) -> int: ...

    @property
    def messages(self) -> int:
        """Messages in an entry."""
        ...

    def burst(self, first: int, count: int) -> bytes:
        """`count` frames with sequence ids from `first`."""
        ...


class MixedSends:
    """Sends by turns of several templates: message n of a run is of template n modulo their number."""

    def __init__(self, templates: list[SendTemplate]) -> None:
        before = templates[-1:] + templates[:-1]
        self._betweens = [last.tail + this.head for last, this in zip(before, templates, strict=True)]
        self._heads = [template.head for template in templates]
        self._tails = [template.tail for template in templates]
        self.frame_bytes = templates[0].frame_bytes
        self.messages = 1

    def burst(self, first: int, count: int) -> bytes:
        """`count` frames with sequence ids from `first`."""
        at, turns = first - FIRST_SEQUENCE_ID, len(self._heads)
        betweens, varints = self._betweens, sequence_varints(first, count)
        parts = [self._heads[at % turns], varints[0]]
        for number in range(1, count):
            parts += (betweens[(at + number) % turns], varints[number])
        parts.append(self._tails[(at + count - 1) % turns])
        return b"".join(parts)


class MarkCounter:
    """Counts a byte pattern in a stream that arrives in arbitrary chunks."""

    __slots__ = ("_keep", "_mark", "_rest", "count")

    def __init__(self, mark: bytes) -> None:
        self.count = 0
        self._mark = mark
        self._keep = len(mark) - 1
        self._rest = b""

    def feed(self, data: bytes) -> int:
        """Count in `data`, and across the border to the chunk before it; returns how many were found."""
        joined = self._rest + data
        found = joined.count(self._mark)
        self.count += found
        self._rest = joined[-self._keep :]
        return found
