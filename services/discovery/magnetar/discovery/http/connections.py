"""Connections of the HTTP port: bounded in number and in the time that one may lie idle or not be read.

They take file descriptors that clients of the binary protocol need, too, and everybody may open some.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Final, cast

from aiohttp import web
from aiohttp.web_request import BaseRequest
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

CONNECTIONS_MAX: Final = 2_048
"""Open at once; more are answered 503 and closed."""

IDLE_S: Final = 75.0
"""Without a whole request after which a connection is closed."""

WRITE_S: Final = 60.0
"""For an answer to be taken by the socket; whoever reads it more slowly is cut off."""

_REFUSED: Final = Counter(
    "magnetar_discovery_http_connections_refused",
    "HTTP connections answered 503 and closed because too many were open.",
    registry=REGISTRY,
)


async def listen(server: web.Server, listening: socket.socket) -> asyncio.Server:
    """Accept connections of a socket that listens already."""
    loop = asyncio.get_running_loop()

    def connect() -> asyncio.Protocol:
        # Those that are accepted in the same turn of the loop are not counted yet: a few more may come in.
        if len(server.connections) >= CONNECTIONS_MAX:
            return _OneTooMany()
        return _Connection(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # which is none, as aiohttp documents
            keepalive_timeout=IDLE_S,
            auto_decompress=False,  # bodies are carried as they are, and nobody here looks into them
        )

    return await loop.create_server(connect, sock=listening)


def refused(status: int, reason: str) -> web.Response:
    """An error in the form of Pulsar's."""
    return web.json_response({"reason": reason}, status=status)


class _OneTooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.WriteTransport, transport)  # which uvloop's do not say that they are
        _REFUSED.inc()
        body = json.dumps({"reason": f"{CONNECTIONS_MAX} HTTP connections are open already; try again"})
        transport.write(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        transport.close()


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What could not be read as a request. Not logged: anybody could fill the log."""
        if request.writer.output_size > 0:
            raise ConnectionResetError("half an answer is sent already")
        response = refused(status, f"this is not HTTP/1.1 as discovery reads it: {message or exc!r:.200}")
        response.force_close()
        return response

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = refused(resp.status, resp.text or resp.reason)
            resp.force_close()
        transport = self.transport
        try:
            async with asyncio.timeout(WRITE_S):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            if transport is not None:
                transport.abort()
            return resp, True
