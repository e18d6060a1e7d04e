"""Connection limits of an HTTP port: number of connections, idle time and write time.

Connections use file descriptors and memory that messaging clients need too, and any host may open them. Input
refused before a request exists (bytes that are not HTTP, an unsupported expectation) is answered with
`{"reason": ...}` here.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiohttp import web
from aiohttp.web_request import BaseRequest
from prometheus_client import Counter

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.accepting import PortTls

CONNECTIONS_MAX: Final = 2048
"""Limit of open connections, Pulsar's default of maxHttpServerConnections. A further connection replaces the
oldest idle one, so health checks still get through; if none is idle it is answered 503.
"""

IDLE_S: Final = 75.0
"""Idle timeout in seconds: a connection without a complete request is closed. Proxies close idle connections
earlier.
"""

_TLS_SEEN: Final = "\\x16\\x03"
"""The begin of a TLS handshake, as the parser's errors show bytes."""

WRITE_S: Final = 60.0
"""Write timeout in seconds: a client that reads its response more slowly is disconnected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Parameters of a service's HTTP port."""

    service: str
    """Name of the service, used in the reason of a refusal."""
    failed: Callable[[int, str], web.Response]
    """Creates a response from a status and a reason."""
    over_the_bound: Counter
    """Counts connections above the limit."""
    auto_decompress: bool = True
    """Whether request bodies are decompressed."""


class Accepting(Protocol):
    """Accepts connections until it is closed."""

    def close(self) -> None: ...


async def listen(
    server: web.Server, listening: socket.socket, port: Port, tls: PortTls | None = None
) -> Accepting:
    """Accept connections of a socket that listens already, with TLS where that is given."""
    loop = asyncio.get_running_loop()

    def connect() -> asyncio.Protocol:
        # Connections accepted in the same turn of the loop are not counted yet, so the limit may be exceeded
        # slightly.
        if len(server.connections) >= CONNECTIONS_MAX:
            port.over_the_bound.inc()
            oldest = next((each for each in server.connections if _idle(each)), None)
            if oldest is None:
                return _OneTooMany()
            oldest.force_close()
        return _Connection(server, port, loop)

    if tls is None:
        return await loop.create_server(connect, sock=listening)
    from magnetar.common.security.tls.accepting import TlsAcceptor

    acceptor = TlsAcceptor(listening, connect, tls)
    acceptor.start()
    return acceptor


class _OneTooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.WriteTransport, transport)  # which uvloop's do not say that they are
        body = json.dumps(
            {"reason": f"{CONNECTIONS_MAX} HTTP connections have requests in process already; try again"}
        )
        transport.write(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        transport.close()


def _idle(connection: web.RequestHandler) -> bool:
    """Returns whether a connection is open and has no request in progress."""
    return connection._current_request is None and connection.transport is not None


class _Connection(web.RequestHandler):
    __slots__ = ("_port",)

    def __init__(self, server: web.Server, port: Port, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # which is none, as aiohttp documents
            keepalive_timeout=IDLE_S,
            auto_decompress=port.auto_decompress,
        )
        self._port = port

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers bytes that are not HTTP. Not logged: any client could fill the log."""
        if request.writer.output_size > 0:
            raise ConnectionResetError("the response was partly sent already")
        told = f"{message} {exc}"
        hint = "; this looks like TLS: use http://, or the port of https://" if _TLS_SEEN in told else ""
        response = self._port.failed(
            status, f"{self._port.service} cannot parse this as HTTP/1.1: {message or exc!r:.200}{hint}"
        )
        response.force_close()
        return response

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = self._port.failed(resp.status, resp.text or resp.reason)
            resp.force_close()
        transport = self.transport
        try:
            async with asyncio.timeout(WRITE_S):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if transport is not None:
                transport.abort()
            return resp, True
