"""A blocking connection for the few commands before and after a measured run."""

from __future__ import annotations

import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from magnetar.common.wire import pulsar_pb2 as pb

from bench.frames import CONSUMER_ID, PRODUCER_ID, simple_frame

ANSWER_SECONDS_MAX = 30.0


class Connection:
    """Commands and answers, one after the other, until the socket is handed to a generator."""

    def __init__(self, service_url: str) -> None:
        url = urlsplit(service_url)
        address = (url.hostname or "127.0.0.1", url.port or 6650)
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send("connect", client_version="bench", protocol_version=21)
        self._answer("connected")

    def open_producer(self, topic: str) -> None:
        """A producer whose id the generated Sends carry."""
        self._send("producer", topic=topic, producer_id=PRODUCER_ID, request_id=1)
        self._answer("producer_success")

    def subscribe(self, topic: str, subscription: str) -> None:
        """A durable Exclusive consumer from the earliest message, without permits."""
        self._send(
            "subscribe",
            topic=topic,
            subscription=subscription,
            subType="Exclusive",
            consumer_id=CONSUMER_ID,
            request_id=2,
            initialPosition="Earliest",
        )
        self._answer("success")

    def send_and_await_receipt(self, frame: bytes) -> None:
        """One Send and its receipt."""
        self.socket.sendall(frame)
        self._answer("send_receipt")

    def close(self) -> None:
        self.socket.close()

    def _send(self, name: str, **fields: Any) -> None:
        self.socket.sendall(simple_frame(name, **fields))

    def _answer(self, expected: str) -> None:
        while True:
            (size,) = struct.unpack(">I", self._exactly(4))
            body = self._exactly(size)
            (command_size,) = struct.unpack_from(">I", body)
            command = pb.BaseCommand.FromString(body[4 : 4 + command_size])
            if command.HasField("ping"):
                self._send("pong")
            elif command.HasField(expected):  # type: ignore[arg-type]
                return
            else:
                raise RuntimeError(f"expected {expected}, got: {' '.join(str(command).split())}")

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            data = self.socket.recv(count - len(parts))
            if not data:
                raise ConnectionError("the broker closed the connection")
            parts += data
        return bytes(parts)
