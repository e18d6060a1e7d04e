"""The asyncio protocol of a client connection: parses commands and writes responses until it is proxied.

Thousands of connections may be idle, so each one is small: a few slots, a timer, and the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from magnetar.common.errors import MagnetarError, ProtocolError, ServiceNotReady, TooManyRequests
from magnetar.common.obs import request_ids
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.identity import Identity
from magnetar.common.security.principal import Principal
from magnetar.common.security.tls.peer_certificate import peer_certificate
from magnetar.common.wire import commands
from magnetar.common.wire.command_stream import CommandStream
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.common.wire.varint import UINT64_MAX
from magnetar.discovery.handlers.authentication import authenticate, has_expired
from magnetar.discovery.handlers.handshake import check_connect, connected
from magnetar.discovery.handlers.routes import answer
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.transport.connection_close import close_soon
from magnetar.discovery.transport.connection_metrics import ANSWER_LATENCY, PROTOCOL_ERRORS, commands_of
from magnetar.discovery.transport.proxy import Proxy

log = get_logger(__name__)

FRAME_BYTES_MAX: Final = 128 * 1024
"""Maximum frame size of a lookup connection, in bytes; only brokers need longer frames."""

FIRST_FRAME_BYTES_MAX: Final = 64 * 1024
"""Maximum frame size, in bytes, of a client that has not authenticated."""

REQUESTS_MAX: Final = 1_000
"""Maximum concurrent requests of one connection; further ones get TooManyRequests."""

UNREAD_BYTES_MAX: Final = 64 * 1024
"""Unread response bytes of a client above which reading from it pauses."""

LAST_LOOK_S: Final = 0.05
"""Grace period before silence counts, in seconds: after a stall, received data is still unread."""

WRITES_MAX: Final = 500
"""Bytes of queued responses above which they are written at once."""

NO_REQUEST_ID: Final = UINT64_MAX
"""Request id of an error that is not related to a request."""


class ConnectionSet(Protocol):
    """Registry of lookup connections."""

    def add(self, connection: Connection) -> None: ...
    def discard(self, connection: Connection) -> None: ...
    def admit(self, connection: Connection) -> None:
        """The connection has authenticated."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Shared state of all connections."""

    services: Services
    proxy: Proxy
    connections: ConnectionSet
    spawn: Callable[[Coroutine[Any, Any, Any], str], object]
    keep_alive_s: float
    connect_timeout_s: float
    """Seconds until the first check of a new connection, by which it must have sent Connect."""
    refusals: LogLimit = field(default_factory=LogLimit)
    breaches: LogLimit = field(default_factory=LogLimit)


class Connection(asyncio.Protocol):
    """A client socket until it is proxied to a broker."""

    __slots__ = (
        "_authenticating",
        "_certificate",
        "_connected",
        "_environment",
        "_heard",
        "_host",
        "_identity",
        "_looked_again",
        "_loop",
        "_open",
        "_out",
        "_pinged",
        "_principal",
        "_proxying",
        "_requests",
        "_stream",
        "_timer",
        "_transport",
    )

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        is_checked = environment.services.authenticator is not None
        self._stream = CommandStream(FIRST_FRAME_BYTES_MAX if is_checked else FRAME_BYTES_MAX)
        self._out: list[bytes] | None = None
        self._requests = 0
        self._open = False
        self._connected = False
        self._proxying: list[bytes] | None = None
        """Bytes received after the Connect of a proxied connection, until the broker is connected."""
        self._heard = True
        self._pinged = False
        self._looked_again = False
        self._authenticating = False
        self._certificate: bytes | None = None
        self._identity: Identity | None = None
        self._principal: Principal | None = None
        """The client's role; None without authentication."""

    @property
    def address(self) -> str:
        """`host:port` of the client."""
        host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        return f"{host}:{port}"

    @property
    def host(self) -> str:
        """The client's host, without its port."""
        return self._host

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES_MAX)
        self._certificate = peer_certificate(transport)
        self._host = self.address.rpartition(":")[0]
        self._open = True
        self._timer = self._loop.call_later(self._environment.connect_timeout_s, self._check_alive)
        self._environment.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._proxying is not None:
            self._proxying.append(data)
            return
        self._heard = True
        try:
            self._stream.receive_data(data)
            while self._open:
                command = self._stream.next_command()
                if command is None:
                    return
                if self._connected:
                    self._handle(command)
                elif self._authenticating:
                    raise ProtocolError(
                        f"{BaseCommand.Type.Name(command.type)} came before Connected was sent"
                    )
                elif check_connect(command):
                    self._go_to_broker(command)
                    return
                elif self._environment.services.authenticator is not None:
                    self._authenticating = True
                    self._environment.spawn(self._authenticate(command), "authenticate a client")
                else:
                    self._connected = True
                    self._write(connected(command))
        except ProtocolError as error:
            self._fail(error)

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone()

    # -- requests

    def _handle(self, command: BaseCommand) -> None:
        began = self._loop.time()
        try:
            if self._requests >= REQUESTS_MAX:
                raise TooManyRequests(f"too many concurrent requests on this connection ({REQUESTS_MAX})")
            answered = answer(self._environment.services, command, self._principal)
        except ProtocolError:
            raise
        except MagnetarError as error:
            self._refuse(command, error)
            return
        if answered is None:
            return
        if isinstance(answered, bytes):
            self._write(answered)
            self._answered(command, began)
            return
        self._requests += 1
        self._environment.spawn(self._finish(command, answered, began), "client command")

    def _answered(self, command: BaseCommand, began: float) -> None:
        commands_of(command.type).inc()
        now = self._loop.time()
        ANSWER_LATENCY.observe(now, now - began)

    async def _finish(self, command: BaseCommand, rest: Coroutine[Any, Any, bytes], began: float) -> None:
        with request_ids.serving(self._id_of(command)):
            await self._complete(command, rest, began)

    async def _complete(self, command: BaseCommand, rest: Coroutine[Any, Any, bytes], began: float) -> None:
        try:
            self._write(await rest)
            self._answered(command, began)
        except MagnetarError as error:
            self._refuse(command, error)
        except Exception as error:  # An internal error must not leave the client waiting.
            log.exception("command failed", peer=self.address, command=BaseCommand.Type.Name(command.type))
            self._refuse(command, error)
        finally:
            self._requests -= 1

    def _id_of(self, command: BaseCommand) -> str:
        return request_ids.of_command(self.address, commands.request_id_of(command))

    def _refuse(self, command: BaseCommand, error: Exception) -> None:
        name, code = BaseCommand.Type.Name(command.type), code_of(error)
        commands_of(command.type, code).inc()
        text = str(error) if isinstance(error, MagnetarError) else f"internal error: {type(error).__name__}"
        count = self._environment.refusals.note(self._loop.time())
        if count:
            log.info(
                "commands refused",
                peer=self.address,
                command=name,
                commands=count,
                # Also for a connection that is refused before it is served.
                request_id=self._id_of(command),
                error=text,
            )
        refusal = commands.error_answer(command, code, text)
        if refusal is not None:
            self._write(refusal)

    # -- credentials

    async def _authenticate(self, command: BaseCommand) -> None:
        services = self._environment.services
        authenticator = services.authenticator
        assert authenticator is not None, "authentication is on"
        try:
            self._identity, self._principal = await authenticate(
                authenticator,
                services.config.authorization,
                command.connect,
                self._certificate,
                self.address,
            )
        except MagnetarError as error:
            self.refuse(error)
            return
        except Exception as error:  # An internal error must not leave the client waiting.
            log.exception("credentials could not be checked", peer=self.address)
            self.refuse(ServiceNotReady(f"internal error: {type(error).__name__}"))
            return
        self._authenticating = False
        self.close_if_revoked()  # a list may have changed while the credentials were checked
        if self._open:
            self._connected = True
            self._stream.allow(FRAME_BYTES_MAX)
            self._environment.connections.admit(self)
            self._write(connected(command))

    def close_if_revoked(self) -> None:
        """Close the connection when its credential was revoked or has expired."""
        authenticator, identity = self._environment.services.authenticator, self._identity
        if authenticator is None or identity is None:
            return
        if has_expired(identity) or not authenticator.still_valid(identity):
            log.info("closing connection", peer=self.address, reason="its credential expired or was revoked")
            self.close()

    # -- to a broker

    def _go_to_broker(self, connect: BaseCommand) -> None:
        self._transport.pause_reading()
        self._timer.cancel()
        self._proxying = [self._stream.rest()]
        self._environment.spawn(self._join(connect), "connect a client to its broker")

    async def _join(self, connect: BaseCommand) -> None:
        proxy = self._environment.proxy
        try:
            splice = await proxy.connect(connect, self.address, self._certificate)
        except MagnetarError as error:
            self.refuse(error)
            return
        except Exception as error:  # No other task owns this connection anymore.
            log.exception("connecting a client to a broker failed", peer=self.address)
            self.refuse(ServiceNotReady(f"internal error: {type(error).__name__}"))
            return
        if not self._open:
            splice.end()
            return
        if splice.ended:
            self.refuse(ServiceNotReady("the broker closed the connection at once; look the topic up again"))
            return
        assert self._proxying is not None
        self._gone()
        proxy.carry(splice, self._transport, connect, b"".join(self._proxying))

    # -- output and the end

    def _write(self, data: bytes) -> None:
        """Queue bytes; bytes queued in one iteration of the event loop are sent in one write.

        Large queues are written at once: only a write detects a slow client, and one iteration may
        process megabytes of requests.
        """
        if self._out is None:
            self._out = [data]
            self._loop.call_soon(self._flush)
        else:
            self._out.append(data)
            if len(self._out) >= WRITES_MAX:
                self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, None
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def _fail(self, error: ProtocolError) -> None:
        """Handle a protocol violation: send the error and close this connection."""
        PROTOCOL_ERRORS.labels(error.reason).inc()
        if count := self._environment.breaches.note(self._loop.time()):
            reason = f"protocol error: {error}"
            log.info("closing connection", peer=self.address, reason=reason, connections=count)
        self.refuse(error)

    def refuse(self, error: MagnetarError) -> None:
        """Send the reason why this connection is refused, and close it."""
        self._write(commands.error(NO_REQUEST_ID, code_of(error), str(error)))
        self.close()

    def close(self) -> None:
        """Close the connection after writing queued data. Idempotent."""
        if self._open:
            self._flush()
            close_soon(self._transport)
            self._gone()

    def _gone(self) -> None:
        if self._open:
            self._open = False
            self._timer.cancel()
            self._environment.connections.discard(self)

    def _check_alive(self) -> None:
        """Run once per keep-alive interval: ping a silent connection, and close it if it stays silent."""
        self.close_if_revoked()
        if not self._open:
            return
        if self._connected and self._heard:
            self._heard = self._pinged = self._looked_again = False
        elif self._connected and not self._pinged:
            self._pinged = True
            self._write(commands.PING)
        elif not self._looked_again:
            self._looked_again = True
            self._timer = self._loop.call_later(LAST_LOOK_S, self._check_alive)
            return
        elif self._connected:
            log.debug("closing connection", peer=self.address, reason="no answer to Ping")
            self.close()
            return
        else:
            self.refuse(ServiceNotReady("no Connect within the keep-alive interval"))
            return
        self._timer = self._loop.call_later(self._environment.keep_alive_s, self._check_alive)
