"""An application behind sockets that listen already."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from aiohttp import web
from magnetar.common.http.connections import Accepting, Port, listen

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.accepting import PortTls

_SHUTDOWN_TIMEOUT_S: Final = 2.0


class AppEdge:
    """Serves an application over HTTP. Use it once: `start` for each socket, then `close`."""

    def __init__(self, app: web.Application, port: Port) -> None:
        self._runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        self._port = port
        self._accepting: list[Accepting] = []

    async def start(self, listening: socket.socket, tls: PortTls | None = None) -> None:
        """Serve connections of a socket that listens already; it stays the caller's to close. Called again
        for another socket, with TLS or without.
        """
        if self._runner.server is None:
            await self._runner.setup()
        assert self._runner.server is not None, "setup makes it"
        self._accepting.append(await listen(self._runner.server, listening, self._port, tls))

    async def close(self) -> None:
        """Stop accepting, give requests in process a moment, end; idempotent."""
        for each in self._accepting:
            each.close()
        await self._runner.cleanup()
