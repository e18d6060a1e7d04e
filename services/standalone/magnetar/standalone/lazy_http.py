"""An HTTP port that listens from the start and loads its web framework at the first connection.

The framework is the largest import of the process: a third of the start time and 12 MB of memory, and not
needed for publishing. Connections made while it loads wait in the socket's queue. It loads in a thread, so
that messages flow meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool

_log = get_logger(__name__)

_BACKLOG: Final = 128


class Edge(Protocol):
    """An HTTP server."""

    async def start(self, listening: socket.socket) -> None: ...
    async def close(self) -> None: ...


class LazyHttp:
    """A listening HTTP socket that starts a service's HTTP server at the first connection."""

    def __init__(self, load: Callable[[], Callable[[], Edge]], pool: BlockingPool) -> None:
        """`load` imports the framework in a thread and returns a factory, which makes the server on the
        event loop.
        """
        self._load_edge = load
        self._pool = pool
        self._socket: socket.socket | None = None
        self._loading: asyncio.Task[None] | None = None
        self._edge: Edge | None = None

    def start(self, host: str, port: int) -> int:
        """Listen and return the port; `port` 0 picks a free one. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self._first_connection, self._socket)
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end running requests. Idempotent."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        try:
            if self._loading is None:
                asyncio.get_running_loop().remove_reader(listening)
            else:
                await asyncio.wait([self._loading])
            if self._edge is not None:
                await self._edge.close()
        finally:
            listening.close()  # Closed in any case: the port is needed again.

    def _first_connection(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._loading = loop.create_task(self._load(listening), name="load http")

    async def _load(self, listening: socket.socket) -> None:
        try:
            make = await self._pool.run(self._load_edge)
            self._edge = make()
            await self._edge.start(listening)
        except Exception:
            _log.exception("the HTTP port cannot be served")
            listening.close()
