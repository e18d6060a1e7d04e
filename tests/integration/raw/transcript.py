"""A client that speaks raw frames over a blocking socket, so that a test reads like a transcript of the wire.

    line.send("subscribe", topic=topic, subscription="s", subType="Shared", consumer_id=1, request_id=7)
    line.expect("success", request_id=7)

Only the generated protobuf code is taken from the project; frames and checksums are made here, independently
of the codec under test. Pings of the server are answered while reading, unless `answer_pings` is off.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import crc32c
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint

MAGIC_CHECKSUM = b"\x0e\x01"
MAGIC_BROKER_METADATA = b"\x0e\x02"
PROTOCOL_VERSION = 20
ANSWER_SECONDS_MAX = 30.0
QUIET_SECONDS = 0.15
STANDALONE = "standalone"

# Built from names and dicts, which the generated type annotations do not know.
_command: Any = pb.BaseCommand
_FIELDS = {field.name: field for field in pb.BaseCommand.DESCRIPTOR.fields if field.name != "type"}


class ConnectionEnded(Exception):
    """The server closed the connection."""


@dataclass(slots=True)
class Frame:
    """One received command, with what follows it when it is a payload frame."""

    name: str
    command: Any
    metadata: pb.MessageMetadata | None = None
    payload: bytes = b""

    @property
    def position(self) -> tuple[int, int]:
        """(ledger id, entry id) of a Message or a SendReceipt."""
        return self.command.message_id.ledgerId, self.command.message_id.entryId


def simple_frame(name: str, **fields: Any) -> bytes:
    """Encode one command without payload; `name` is the field of BaseCommand that holds it."""
    command = _command(type=_FIELDS[name].number, **{name: fields})
    if not fields:
        getattr(command, name).SetInParent()
    encoded: bytes = command.SerializeToString()
    return struct.pack(">II", len(encoded) + 4, len(encoded)) + encoded


def payload_frame(
    producer_id: int,
    sequence_id: int,
    payload: bytes,
    metadata: pb.MessageMetadata | None = None,
    *,
    checksum_xor: int = 0,
    **send: Any,
) -> bytes:
    """Encode one Send; `checksum_xor` damages its checksum."""
    if metadata is None:
        metadata = pb.MessageMetadata(
            producer_name="raw", sequence_id=sequence_id, publish_time=int(time.time() * 1000)
        )
    command: bytes = _command(
        type=pb.BaseCommand.SEND, send={"producer_id": producer_id, "sequence_id": sequence_id, **send}
    ).SerializeToString()
    header = metadata.SerializeToString()
    checked = struct.pack(">I", len(header)) + header + payload
    checksum = crc32c.crc32c(checked) ^ checksum_xor
    body = struct.pack(">I", len(command)) + command + MAGIC_CHECKSUM + struct.pack(">I", checksum) + checked
    return struct.pack(">I", len(body)) + body


def batch_payload(messages: Sequence[bytes]) -> bytes:
    """The payload of an uncompressed batch."""
    parts = []
    for message in messages:
        single = pb.SingleMessageMetadata(payload_size=len(message)).SerializeToString()
        parts.append(struct.pack(">I", len(single)) + single + message)
    return b"".join(parts)


def batch_messages(payload: bytes) -> list[bytes]:
    """The messages of an uncompressed batch."""
    messages, offset = [], 0
    while offset < len(payload):
        (size,) = struct.unpack_from(">I", payload, offset)
        offset += 4
        single = pb.SingleMessageMetadata.FromString(payload[offset : offset + size])
        offset += size
        messages.append(payload[offset : offset + single.payload_size])
        offset += single.payload_size
    return messages


def parse_frame(body: bytes) -> Frame:
    """Decode what follows the total size of a frame, checking its checksum."""
    (command_size,) = struct.unpack_from(">I", body)
    base = pb.BaseCommand.FromString(body[4 : 4 + command_size])
    name = next(field.name for field in _FIELDS.values() if field.number == base.type)
    rest = body[4 + command_size :]
    if not rest:
        return Frame(name, getattr(base, name))
    assert not rest.startswith(MAGIC_BROKER_METADATA), "broker entry metadata was not asked for"
    assert rest.startswith(MAGIC_CHECKSUM), f"payload without checksum: {rest[:8].hex()}"
    checksum, metadata_size = struct.unpack_from(">II", rest, 2)
    assert crc32c.crc32c(rest[6:]) == checksum, "the server sent a payload whose checksum does not match"
    metadata = pb.MessageMetadata.FromString(rest[10 : 10 + metadata_size])
    return Frame(name, getattr(base, name), metadata, rest[10 + metadata_size :])


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Payloads that say their number."""
    return [b"%d" % n for n in range(first, first + count)]


def seconds_at_rate(messages: int, per_s: int) -> float:
    """What so many messages take at least, when a second's worth of them is taken at once.

    A tenth less: every connection may take one message that is then owed, and the event loop reckons its
    timers from the moment at which its turn began.
    """
    return 0.9 * (messages - per_s) / per_s


def payloads(frames: Sequence[Frame]) -> list[bytes]:
    """What the frames carry."""
    return [frame.payload for frame in frames]


def message_id(position: tuple[int, int]) -> dict[str, int]:
    """A position as MessageIdData."""
    return {"ledgerId": position[0], "entryId": position[1]}


class Line:
    """One raw connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.answer_pings = True
        self._endpoint = endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._request_id = 0

    @property
    def socket(self) -> socket.socket:
        """For tests that do to it what frames cannot."""
        return self._socket

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def send(self, name: str, **fields: Any) -> None:
        """Send one command without payload."""
        self.send_bytes(simple_frame(name, **fields))

    def request(self, name: str, **fields: Any) -> int:
        """Send one command with a fresh request id, which is returned."""
        self._request_id += 1
        self.send(name, request_id=self._request_id, **fields)
        return self._request_id

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Frame:
        """The next frame; TimeoutError when none comes, ConnectionEnded when the server closed."""
        deadline = time.monotonic() + seconds_max
        while True:
            body = self._take()
            if body is None:
                self._fill(deadline)
                continue
            frame = parse_frame(body)
            if frame.name == "ping" and self.answer_pings:
                self.send("pong")
                continue
            return frame

    def expect(self, name: str, **fields: Any) -> Frame:
        """The next frame, which must be `name` with these fields."""
        frame = self.receive()
        assert frame.name == name, f"expected {name} {fields}, got {frame.name}: {frame.command}"
        for key, value in fields.items():
            got = getattr(frame.command, key)
            assert got == value, f"{name}.{key} is {got!r}, expected {value!r}: {frame.command}"
        return frame

    def expect_error(self, request_id: int, error: str) -> str:
        """The next frame, which must be an Error of this name; returns its message."""
        frame = self.expect("error", request_id=request_id)
        assert pb.ServerError.Name(frame.command.error) == error, f"{frame.command}"
        return str(frame.command.message)

    def expect_messages(self, count: int) -> list[Frame]:
        """The next `count` frames, all of them Messages."""
        return [self.expect("message") for _ in range(count)]

    def expect_quiet(self, seconds: float = QUIET_SECONDS) -> None:
        """Nothing but the answer to a Ping comes, and nothing in `seconds` after it."""
        self.send("ping")
        frame = self.receive()
        assert frame.name == "pong", f"expected nothing, got {frame.name}: {frame.command}"
        try:
            frame = self.receive(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected nothing, got {frame.name}: {frame.command}")

    def expect_closed(self, seconds_max: float = ANSWER_SECONDS_MAX) -> list[Frame]:
        """The server closes the connection; returns what it still sent before."""
        frames = []
        try:
            while True:
                frames.append(self.receive(seconds_max))
        except ConnectionEnded:
            return frames
        except TimeoutError:
            raise AssertionError(f"the connection is still open, after {frames}") from None

    # The usual openings, so that a transcript starts where it becomes interesting.

    def connect(self, **fields: Any) -> Frame:
        """Connect and Connected."""
        self.send("connect", **{"client_version": "raw", "protocol_version": PROTOCOL_VERSION, **fields})
        return self.expect("connected")

    def open_producer(self, topic: str, producer_id: int = 1, **fields: Any) -> Frame:
        """Producer and ProducerSuccess."""
        request_id = self.ask_producer(topic, producer_id, **fields)
        return self.expect("producer_success", request_id=request_id)

    def ask_producer(self, topic: str, producer_id: int = 1, **fields: Any) -> int:
        """Producer, leaving the answer to the caller."""
        self._look_up(topic)
        return self.request("producer", topic=topic, producer_id=producer_id, **fields)

    def subscribe(self, topic: str, subscription: str = "sub", consumer_id: int = 1, **fields: Any) -> None:
        """Subscribe (Exclusive, at the earliest message unless told otherwise) and Success."""
        self.expect("success", request_id=self.ask_subscribe(topic, subscription, consumer_id, **fields))

    def ask_subscribe(
        self, topic: str, subscription: str = "sub", consumer_id: int = 1, **fields: Any
    ) -> int:
        """Subscribe, leaving the answer to the caller."""
        self._look_up(topic)
        defaults = {"subType": "Exclusive", "initialPosition": "Earliest"}
        return self.request(
            "subscribe",
            topic=topic,
            subscription=subscription,
            consumer_id=consumer_id,
            **{**defaults, **fields},
        )

    def _look_up(self, topic: str) -> None:
        """As every client does first, on a connection of its own; a broker of a cluster serves what was
        looked up. What is wrong with the topic, the transcript says.
        """
        if self._endpoint.cluster == STANDALONE:
            return
        with line(self._endpoint) as other:
            other.request("lookupTopic", topic=topic)
            other.receive()

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        """Grant permits."""
        self.send("flow", consumer_id=consumer_id, messagePermits=permits)

    def publish(self, *payloads: bytes, producer_id: int = 1, first: int = 0) -> list[tuple[int, int]]:
        """Send unbatched messages all at once, then await every receipt; returns the positions."""
        self.send_bytes(
            b"".join(payload_frame(producer_id, first + n, payload) for n, payload in enumerate(payloads))
        )
        return [
            self.expect("send_receipt", producer_id=producer_id, sequence_id=first + n).position
            for n in range(len(payloads))
        ]

    def publish_batch(
        self, messages: Sequence[bytes], producer_id: int = 1, first: int = 0
    ) -> tuple[int, int]:
        """Send one batch and await its receipt; returns its position."""
        metadata = pb.MessageMetadata(
            producer_name="raw",
            sequence_id=first,
            highest_sequence_id=first + len(messages) - 1,
            publish_time=int(time.time() * 1000),
            num_messages_in_batch=len(messages),
        )
        frame = payload_frame(
            producer_id,
            first,
            batch_payload(messages),
            metadata,
            num_messages=len(messages),
            highest_sequence_id=first + len(messages) - 1,
        )
        self.send_bytes(frame)
        return self.expect("send_receipt", producer_id=producer_id, sequence_id=first).position

    def ack(
        self,
        *positions: tuple[int, int],
        consumer_id: int = 1,
        cumulative: bool = False,
        ack_set: Sequence[int] = (),
        receipt: bool = True,
    ) -> None:
        """Acknowledge positions; with `receipt` also ask for and await the AckResponse."""
        ids = [
            {"ledgerId": ledger, "entryId": entry, "ack_set": list(ack_set)} for ledger, entry in positions
        ]
        fields: dict[str, Any] = {
            "consumer_id": consumer_id,
            "ack_type": "Cumulative" if cumulative else "Individual",
            "message_id": ids,
        }
        if not receipt:
            self.send("ack", **fields)
            return
        request_id = self.request("ack", **fields)
        answer = self.expect("ackResponse", request_id=request_id, consumer_id=consumer_id)
        assert not answer.command.HasField("error"), f"{answer.command}"

    def _take(self) -> bytes | None:
        if len(self._buffer) < 4:
            return None
        (size,) = struct.unpack_from(">I", self._buffer)
        if len(self._buffer) < 4 + size:
            return None
        body = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return body

    def _fill(self, deadline: float) -> None:
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("no frame came")
        self._socket.settimeout(seconds_left)
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionEnded
        self._buffer += data


@contextmanager
def line(endpoint: Endpoint, *, connected: bool = True) -> Iterator[Line]:
    """A raw connection that is closed at the end of the block."""
    connection = Line(endpoint)
    try:
        if connected:
            connection.connect()
        yield connection
    finally:
        connection.close()
