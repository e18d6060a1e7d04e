"""The client of the health check: runs in this process, with the interface of a connection's peer."""

from __future__ import annotations

import asyncio

from magnetar.broker.client_endings import EndCode
from magnetar.broker.read_pauses import ReadPauses
from magnetar.common.errors import ServiceNotReady, StorageError
from magnetar.common.wire.commands import PROTOCOL_VERSION
from magnetar.common.wire.pulsar_pb2 import BaseCommand

_SIZE_BYTES = 4


class HeartbeatClient:
    """Publishes one message and waits for its receipt and for the message itself. Implements `peer.Peer`."""

    listener: str | None = None
    certificate: bytes | None = None
    """It has no connection, and so none of TLS."""

    address = "the broker's own health check"
    writable = True
    unwritable_s = 0.0
    read_pauses = ReadPauses()
    protocol_version = PROTOCOL_VERSION

    def __init__(self, payload: bytes) -> None:
        """`payload` must not occur in any other message of the topic."""
        loop = asyncio.get_running_loop()
        self.stored: asyncio.Future[None] = loop.create_future()
        """Done with the message's receipt. Fails with StorageError when the message is refused, and with
        ServiceNotReady when the topic is closed meanwhile.
        """
        self.read_back: asyncio.Future[None] = loop.create_future()
        """Done when the message was delivered; fails like `stored`."""
        self.connected = True
        self._payload = payload

    def write(self, data: bytes) -> None:
        """Receives complete frames, in the order of the wire."""
        rest = memoryview(data)
        while rest:
            end = _SIZE_BYTES + int.from_bytes(rest[:_SIZE_BYTES], "big")
            command_end = 2 * _SIZE_BYTES + int.from_bytes(rest[_SIZE_BYTES : 2 * _SIZE_BYTES], "big")
            command = BaseCommand.FromString(rest[2 * _SIZE_BYTES : command_end].tobytes())
            self._take(command, rest[command_end:end].tobytes())
            rest = rest[end:]

    def write_parts(self, parts: list[bytes]) -> None:
        """Receives frames like `write`; the pieces together are complete frames."""
        self.write(b"".join(parts))

    def publish_pending(self, byte_count: int) -> None:
        """Does nothing: a single message needs no bound."""

    def pause_reading_for(self, seconds: float) -> None:
        """Does nothing: there is only one message to read."""

    def close(self, reason: str, code: EndCode) -> None:
        """Handles the loss of the topic or the end of the check."""
        self.connected = False
        self._fail(ServiceNotReady(reason))

    async def is_alive(self) -> bool:
        """Returns True: the client runs in this process."""
        return self.connected

    def _take(self, command: BaseCommand, entry: bytes) -> None:
        match command.type:
            case BaseCommand.SEND_RECEIPT:
                _done(self.stored)
            case BaseCommand.SEND_ERROR:
                self._fail(StorageError(command.send_error.message))
            case BaseCommand.MESSAGE if self._payload in entry:
                _done(self.read_back)
            case BaseCommand.CLOSE_PRODUCER | BaseCommand.CLOSE_CONSUMER:
                self._fail(ServiceNotReady("the topic was closed"))
            case _:
                pass

    def _fail(self, error: ServiceNotReady | StorageError) -> None:
        for future in (self.stored, self.read_back):
            if not future.done():
                future.set_exception(error)
                future.exception()  # one of the two may have no waiter


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
