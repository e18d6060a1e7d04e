"""An HTTP application served on an already listening socket."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from aiohttp import web
from magnetar.common.http.connections import Port, listen

_SHUTDOWN_TIMEOUT_S: Final = 2.0


class AppEdge:
    """Serves an application over HTTP. Use it once: `start`, then `close`."""

    def __init__(self, app: web.Application, port: Port) -> None:
        self._runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        self._port = port
        self._listener: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serves connections of an already listening socket; the caller closes the socket."""
        await self._runner.setup()
        assert self._runner.server is not None, "setup makes it"
        self._listener = await listen(self._runner.server, listening, self._port)

    async def close(self) -> None:
        """Stops accepting, gives requests in progress a moment to finish, then closes; idempotent."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
