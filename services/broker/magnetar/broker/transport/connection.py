"""The asyncio side of a client connection: bytes from the socket to the codec, commands to the handlers.

Parsing is in common.wire, and command logic in handlers. This module has only what needs a socket: one write
per turn of the event loop, keepalive, back-pressure in both directions, and closing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.acks import handle_ack_group, handle_acks, handle_transactional_acks
from magnetar.broker.handlers.client import Client, Services
from magnetar.broker.handlers.credentials import check_credentials
from magnetar.broker.handlers.producers import (
    handle_rejected_send,
    handle_sends,
    handle_transactional_sends,
)
from magnetar.broker.handlers.routes import route
from magnetar.broker.read_pauses import (
    ACKNOWLEDGEMENTS,
    BROKER_PUBLISHES,
    CONNECTION_PUBLISHES,
    CREDENTIALS,
    PUBLISH_RATE,
    UNREAD_OUTPUT,
    ReadPauses,
)
from magnetar.common.errors import MagnetarError, ProtocolError, TooManyRequests
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.closed_transport import ClosedTransport
from magnetar.common.security.tls.peer_certificate import peer_certificate
from magnetar.common.wire import commands
from magnetar.common.wire.command_parser import parse_command
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.events import (
    AckGroup,
    AckRun,
    Command,
    Event,
    SendRun,
    TransactionalAcks,
    TransactionalSends,
)
from magnetar.common.wire.pulsar_pb2 import BaseCommand, ServerError
from prometheus_client import Counter

if TYPE_CHECKING:  # without load balancers there is no use for it
    from magnetar.common.security.proxy_protocol.header import Client as ProxiedClient

log = get_logger(__name__)

PROTOCOL_ERRORS = Counter(
    "magnetar_protocol_errors_total",
    "Connections closed because of a protocol error of the client, by kind of error.",
    ["reason"],
    registry=REGISTRY,
)

REFUSED_COMMANDS = Counter(
    "magnetar_refused_commands_total",
    "Commands answered with an error, by command and code.",
    ["command", "code"],
    registry=REGISTRY,
)

UNAUTHENTICATED_FRAME_BYTES_MAX: Final = 64 * 1024
"""Longest frame of a client that has to authenticate and has not."""

REQUESTS_MAX: Final = 10_000
"""Maximum requests of one connection in process; further ones are answered with TooManyRequests."""

UNANSWERED_MAX: Final = 1_000
"""Maximum commands in process that need no response (Acks that wait for storage); at the limit, reading
pauses.
"""

JOIN_BYTES_MAX: Final = 64 * 1024
"""Maximum average bytes of queued buffers that are joined into one; larger buffers are written separately."""

UNSENT_BYTES_MIN: Final = 64 * 1024
"""Unsent bytes of a socket from which on they count against the process's memory budget."""

UNSENT_WATCH_S: Final = 0.1

LAST_LOOK_S: Final = 0.05
"""Seconds to read pending input before a connection counts as silent: after a suspension of the process, the
peer's bytes wait unread in the socket.
"""

LAST_BYTES_S: Final = 5.0
"""Seconds that a client may take to read its remaining output when its connection is closed."""

UNREAD_FACTOR: Final = 8
"""Multiple of the write buffer limit at which the broker stops reading from a client, because the client does
not read either.
"""


class ConnectionSet(Protocol):
    """Set of open connections."""

    def add(self, connection: Connection) -> None: ...
    def discard(self, connection: Connection) -> None: ...
    def admit(self, connection: Connection) -> None:
        """The connection has authenticated."""
        ...


class Connection(asyncio.Protocol):
    """One client socket. Implements broker.peer.Peer."""

    def __init__(
        self, services: Services, connections: ConnectionSet, client: ProxiedClient | None = None
    ) -> None:
        """`client`: the other end as a load balancer names it; None takes that of the socket."""
        self._proxied_client = client
        listener = services.config.listener
        self._services = services
        self._budget = services.budget
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._keep_alive_s = float(listener.keep_alive_interval_s)
        self._look_s = self._keep_alive_s
        self._connect_timeout_s = self._keep_alive_s
        self._liveness_timeout_s = listener.liveness_check_timeout_ms / 1000
        self._pending_bytes_max = services.config.publish.connection_pending_bytes_max
        self._write_buffer_bytes_max = services.config.dispatch.write_buffer_bytes_max
        self._wire = ServerConnection(services.config.publish.message_bytes_max)
        self._client = Client(services, self)
        if services.authenticator is not None:
            authentication = services.config.authentication
            self._look_s = min(self._keep_alive_s, float(authentication.refresh_check_s))
            self._connect_timeout_s = authentication.connect_timeout_ms / 1000
            self._wire.limit_frames(UNAUTHENTICATED_FRAME_BYTES_MAX)
            self._client.on_connected = self._admitted
        self._out: list[bytes] = []
        self._flush_scheduled = False
        self._pending_bytes = 0
        self.read_pauses = ReadPauses()
        self._pauses = self.read_pauses.lasting
        self._paused_until = 0.0
        self._pause_timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._unanswered = 0
        self._heard = True
        self._pinged = False
        self._looked_again = False
        self._life_signs: list[asyncio.Future[None]] = []
        self.address = self.host = "?"
        self.certificate: bytes | None = None
        self.listener: str | None = None
        self.protocol_version = 0
        self._output_open = True
        self._output_closed_s = 0.0
        self._unsent_bytes = 0
        self._unsent_watch: asyncio.TimerHandle | None = None
        self.connected = False

    @property
    def client(self) -> Client:
        """The state of the client, for those that look at all of them."""
        return self._client

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._write_buffer_bytes_max)
        proxied = self._proxied_client
        if proxied is not None:
            host, port = proxied.host, proxied.port
        else:
            host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        self.address, self.host = f"{host}:{port}", str(host)
        self.certificate = peer_certificate(transport)
        self.connected = True
        self._client.connected_since_ms = self._services.clock.wall_ms()
        self._ping_at = self._loop.time() + self._keep_alive_s
        self._keep_alive = self._loop.call_later(self._connect_timeout_s, self._check_alive)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._life_signs:
            self._show_life()
        try:
            events = self._wire.receive_data(data)
            if not self._client.connected:
                events = self._commands_before_connected(events)
            for event in events:
                if not self.connected:
                    return
                if isinstance(event, SendRun):
                    handle_sends(self._client, event)
                elif isinstance(event, AckRun):
                    handle_acks(self._client, event)
                elif isinstance(event, AckGroup):
                    handle_ack_group(self._client, event)
                elif isinstance(event, Command):
                    self._handle(event.base_command)
                elif isinstance(event, TransactionalSends):
                    handle_transactional_sends(self._client, event)
                elif isinstance(event, TransactionalAcks):
                    if not handle_transactional_acks(self._client, event):
                        for encoded in event.commands:
                            self._handle(parse_command(encoded))
                else:
                    handle_rejected_send(self._client, event)
        except ProtocolError as error:
            self._fail(error)

    def _commands_before_connected(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, as long as none but commands come before the client is connected."""
        for event in events:
            if not self._client.connected and not isinstance(event, Command):
                raise ProtocolError("the first command is not CONNECT")
            yield event

    def pause_writing(self) -> None:
        self._output_open = False
        self._output_closed_s = self._loop.time()

    def resume_writing(self) -> None:
        self._output_open = True
        self._count_unsent()
        self._resume_reading(UNREAD_OUTPUT)
        self._client.writable_again()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self._gone(EndCode.CONNECTION_ENDED, "")
        else:
            self._gone(EndCode.CONNECTION_LOST, str(error))
        self._transport = ClosedTransport()

    # -- commands

    def _handle(self, command: BaseCommand) -> None:
        if self._requests >= REQUESTS_MAX and commands.request_id_of(command) is not None:
            self._answer_error(command, TooManyRequests(f"{REQUESTS_MAX} requests are in process already"))
            return
        try:
            rest = route(self._client, command)
        except ProtocolError:
            raise
        except MagnetarError as error:
            self._answer_error(command, error)
            return
        if rest is None:
            return
        if not self._client.connected:
            # Until the credentials are checked, and a wrong password is answered, nothing more is read.
            self._pause_reading(CREDENTIALS)
        if commands.request_id_of(command) is not None:
            self._requests += 1
        else:
            self._unanswered += 1
            if self._unanswered >= UNANSWERED_MAX:
                self._pause_reading(ACKNOWLEDGEMENTS)
        self._services.spawn(self._finish(command, rest), "client command")

    async def _finish(self, command: BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        with request_ids.serving(self._id_of(command)):
            await self._complete(command, rest)

    async def _complete(self, command: BaseCommand, rest: Coroutine[Any, Any, None]) -> None:
        try:
            await rest
        except ProtocolError as error:
            self._fail(error)
        except MagnetarError as error:
            self._answer_error(command, error)
        except Exception as error:  # a bug of the broker must not leave the client waiting
            log.exception("command failed", peer=self.address, command=BaseCommand.Type.Name(command.type))
            self._answer_error(command, error)
        finally:
            if commands.request_id_of(command) is not None:
                self._requests -= 1
            else:
                self._unanswered -= 1
                if self._pauses and self._unanswered <= UNANSWERED_MAX // 2:
                    self._resume_reading(ACKNOWLEDGEMENTS)

    def _id_of(self, command: BaseCommand) -> str:
        return request_ids.of_command(self.address, commands.request_id_of(command))

    def _answer_error(self, command: BaseCommand, error: Exception) -> None:
        name, code = BaseCommand.Type.Name(command.type), code_of(error)
        REFUSED_COMMANDS.labels(name, ServerError.Name(code)).inc()
        count = self._client.times_to_log(f"{name} refused")
        if count:
            log.info(
                "command refused",
                peer=self.address,
                command=name,
                commands=count,
                # Also counted when the command is refused at once, before it is served.
                request_id=self._id_of(command),
                error=f"{type(error).__name__}: {error}",
            )
        message = (
            str(error) if isinstance(error, MagnetarError) else f"internal error: {type(error).__name__}"
        )
        self._client.refused(command, ServerError.Name(code), message)
        answer = commands.error_answer(command, code, message)
        if answer is not None:
            self.write(answer)

    def _fail(self, error: ProtocolError) -> None:
        """Handles a protocol error of the peer: sends the error, then closes; no other client is affected."""
        PROTOCOL_ERRORS.labels(error.reason).inc()
        self.write(commands.error(commands.NO_REQUEST_ID, code_of(error), str(error)))
        self.close(f"protocol error: {error}", EndCode.PROTOCOL_ERROR)

    # -- broker.peer.Peer

    @property
    def writable(self) -> bool:
        return self._output_open and not (self._unsent_bytes and self._budget.spent)

    @property
    def unwritable_s(self) -> float:
        return 0.0 if self._output_open or not self.connected else self._loop.time() - self._output_closed_s

    def write(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def write_parts(self, parts: list[bytes]) -> None:
        self._out += parts
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        out, self._out = self._out, []
        if not out or self._transport.is_closing():
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) > JOIN_BYTES_MAX * len(out):
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
        if self._transport.get_write_buffer_size() >= UNSENT_BYTES_MIN:
            self._count_unsent()

    def _count_unsent(self) -> None:
        """Charges unsent bytes to the process's budget, and checks again until they are sent."""
        unsent = 0
        if self.connected:
            size = self._transport.get_write_buffer_size()
            unsent = size if size >= UNSENT_BYTES_MIN else 0
            if size > UNREAD_FACTOR * self._write_buffer_bytes_max:
                self._pause_reading(UNREAD_OUTPUT)
        if unsent != self._unsent_bytes:
            change, self._unsent_bytes = unsent - self._unsent_bytes, unsent
            self._budget.add_output(change)
        if not unsent:
            return
        if self._budget.spent:
            self._budget.wait_to_read(id(self), self._client.writable_again)
        if self._unsent_watch is None:
            self._unsent_watch = self._loop.call_later(UNSENT_WATCH_S, self._look_at_unsent)

    def _look_at_unsent(self) -> None:
        self._unsent_watch = None
        self._count_unsent()

    def publish_pending(self, byte_count: int) -> None:
        self._pending_bytes += byte_count
        self._budget.add_publishes(byte_count)
        if byte_count > 0:
            if self._pending_bytes >= self._pending_bytes_max:
                self._pause_reading(CONNECTION_PUBLISHES)
            if self._budget.publishes_spent:
                self._pause_reading(BROKER_PUBLISHES)
                self._budget.wait_to_publish(id(self), lambda: self._resume_reading(BROKER_PUBLISHES))
        elif self._pauses and self._pending_bytes <= self._pending_bytes_max // 2:
            self._resume_reading(CONNECTION_PUBLISHES)

    def pause_reading_for(self, seconds: float) -> None:
        until = self._loop.time() + seconds
        if not self.connected or until <= self._paused_until:
            return
        self._paused_until = until
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = self._loop.call_at(until, self._resume_reading, PUBLISH_RATE)
        self._pause_reading(PUBLISH_RATE)

    def close(self, reason: str, code: EndCode) -> None:
        if not self.connected:
            return
        count = self._services.closings.note(self._loop.time())
        if count:
            log.info("closing connection", peer=self.address, reason=reason, connections=count)
        self._flush()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # A client that does not read would otherwise keep socket and buffer for as long as it is
            # suspended.
            self._loop.call_later(LAST_BYTES_S, self._transport.abort)
        self._gone(code, reason)

    def refuse(self, reason: str) -> None:
        """Send the reason why this connection is over a limit, and close it."""
        self.write(commands.error(commands.NO_REQUEST_ID, ServerError.NotAllowedError, reason))
        self.close(reason, EndCode.CONNECTION_LIMIT)

    async def is_alive(self) -> bool:
        if not self.connected:
            return False
        if not self._liveness_timeout_s or self._pauses:
            # Without the check, or while we do not read from it, a dead connection is not detected.
            return True
        sign: asyncio.Future[None] = self._loop.create_future()
        self._life_signs.append(sign)
        self.write(commands.PING)
        await asyncio.wait([sign], timeout=self._liveness_timeout_s)
        if not sign.done():
            await asyncio.wait([sign], timeout=LAST_LOOK_S)
        if not sign.done():
            self.close("no pong when another client requested its place", EndCode.KEEP_ALIVE_TIMEOUT)
        return self.connected

    # -- internals

    def _show_life(self) -> None:
        signs, self._life_signs = self._life_signs, []
        for sign in signs:
            if not sign.done():
                sign.set_result(None)

    def _check_alive(self) -> None:
        """Once per interval: check credentials; ping when the line was silent, close when it stays so."""
        if self._client.credentials is not None:
            check_credentials(self._client)
            if not self.connected:
                return
            if not self._looked_again and self._loop.time() < self._ping_at - self._look_s / 2:
                self._keep_alive = self._loop.call_later(self._look_s, self._check_alive)
                return
        silent = self._pinged and not self._heard and not self._pauses
        if (silent or not self._client.connected) and not self._looked_again:
            self._looked_again = True
            self._keep_alive = self._loop.call_later(LAST_LOOK_S, self._check_alive)
            return
        self._looked_again = False
        if not self._client.connected:
            self.close(f"no Connect within {self._connect_timeout_s:g} s", EndCode.NO_CONNECT)
            return
        if self._heard:
            self._heard = self._pinged = False
        elif silent:
            self.close("no answer to Ping within the keep-alive interval", EndCode.KEEP_ALIVE_TIMEOUT)
            return
        # While the peer's Pings lie unread, our own Pings tell it that we are alive.
        if not self._heard and (not self._pinged or self._pauses):
            self._pinged = True
            self.write(commands.PING)
        self._ping_at = self._loop.time() + self._keep_alive_s
        self._keep_alive = self._loop.call_later(self._look_s, self._check_alive)

    def _admitted(self) -> None:
        """Lifts the limits of connections that have not authenticated."""
        self._wire.limit_frames(None)
        self._resume_reading(CREDENTIALS)
        self._connections.admit(self)
        self._keep_alive.cancel()
        self._keep_alive = self._loop.call_later(self._look_s, self._check_alive)

    def _pause_reading(self, why: str) -> None:
        if not self._pauses and not self._transport.is_closing():
            self._transport.pause_reading()
        self.read_pauses.begin(why, self._loop.time())

    def _resume_reading(self, why: str) -> None:
        if why in self._pauses:
            self.read_pauses.end(why, self._loop.time())
            if not self._pauses and not self._transport.is_closing():
                self._transport.resume_reading()

    def _gone(self, code: EndCode, reason: str) -> None:
        """Releases everything bound to the closed connection, and records its end. Runs once."""
        if not self.connected:
            return
        self.connected = False
        self._output_open = False
        self._count_unsent()
        self._keep_alive.cancel()
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._connections.discard(self)
        self._budget.forget(id(self))
        self._client.disconnected(code, reason)
        self._show_life()
