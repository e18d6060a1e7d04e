"""A connection from discovery to a broker, which carries forwarded requests."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

from magnetar.common.errors import ProtocolError, ServiceNotReady, TooManyRequests
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire import commands
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.command_stream import CommandStream
from magnetar.common.wire.frame import FRAME_PADDING_BYTES, MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.discovery.handlers.handshake import NAME

log = get_logger(__name__)

PENDING_MAX: Final = 10_000
"""Maximum pending requests of one broker; further ones are refused."""


class BrokerLink(asyncio.Protocol):
    """A single connection, created by `open`; not reusable after `closed`."""

    def __init__(self, connect: bytes) -> None:
        """`connect` is the encoded Connect, with our credentials."""
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._stream = CommandStream(MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES)
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._pending: dict[int, asyncio.Future[BaseCommand]] = {}
        self._last_id = 0
        self.closed = False

    @staticmethod
    async def open(host: str, port: int, connect: bytes, tls: ssl.SSLContext | None) -> BrokerLink:
        """Connect and shake hands. Raises OSError, ServiceNotReady; the caller bounds the time."""
        link = BrokerLink(connect)
        await asyncio.get_running_loop().create_connection(lambda: link, host, port, ssl=tls)
        try:
            await link._ready
        except BaseException:
            link.close("no longer needed")
            raise
        return link

    async def ask(self, command: BaseCommand) -> BaseCommand:
        """Return the broker's response with the command's request id; modifies `command` meanwhile.

        Raises ServiceNotReady when the connection ends first, TooManyRequests; the caller bounds the time.
        """
        if self.closed:
            raise ServiceNotReady("the connection to the broker was closed")
        if len(self._pending) >= PENDING_MAX:
            raise TooManyRequests(f"too many pending requests to one broker ({PENDING_MAX}); try again")
        request = getattr(command, command_field(command))
        client_id = request.request_id
        self._last_id += 1
        ours = self._last_id
        request.request_id = ours
        encoded = encode_command(command)
        request.request_id = client_id
        answered: asyncio.Future[BaseCommand] = self._loop.create_future()
        self._pending[ours] = answered
        self._transport.write(encoded)
        try:
            found = await answered
        finally:
            self._pending.pop(ours, None)
        getattr(found, command_field(found)).request_id = client_id
        return found

    def close(self, reason: str) -> None:
        """Closes the connection and fails all waiters. Idempotent."""
        if self.closed:
            return
        self.closed = True
        error = ServiceNotReady(f"the connection to the broker was closed: {reason}")
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # Retrieve the result even without a waiter.
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._pending.clear()
        self._transport.close()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        try:
            self._stream.receive_data(data)
            while not self.closed:
                command = self._stream.next_command()
                if command is None:
                    return
                self._take(command)
        except ProtocolError as error:
            log.error("broker violated the protocol", error=str(error))
            self.close(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error) if error else "closed by the broker")

    def _take(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.PING:
            self._transport.write(commands.PONG)
        elif command.type == BaseCommand.CONNECTED:
            if command.connected.server_version.startswith(NAME):
                # A discovery would forward to a broker in turn, possibly at the same address.
                self.close("its address (advertisedAddress) is that of a discovery, not of the broker")
            elif not self._ready.done():
                self._ready.set_result(None)
        else:
            request_id = commands.request_id_of(command)
            waiting = None if request_id is None else self._pending.get(request_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
            elif command.type == BaseCommand.ERROR:
                self.close(command.error.message)
