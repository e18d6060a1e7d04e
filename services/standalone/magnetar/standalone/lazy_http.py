"""The HTTP ports listen from the start and load their web framework at the first connection.

The framework is the largest import of the process: a third of the start time and 12 MB of memory, and not
needed for publishing. Connections made while it loads wait in the socket's queue. It loads in a thread, so
that messages flow meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.standalone.process import freeze_what_was_loaded_later

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.accepting import PortTls

_log = get_logger(__name__)

_BACKLOG: Final = 128


class Edge(Protocol):
    """An HTTP server. `start` is called for each socket, which listens already."""

    async def start(self, listening: socket.socket, tls: PortTls | None = None) -> None: ...
    async def close(self) -> None: ...


class LazyHttp:
    """Listening HTTP sockets, and behind them, after the first connection, a service's pages."""

    def __init__(
        self, load: Callable[[], Callable[[], Edge]], pool: BlockingPool, *, shares_ports: bool = False
    ) -> None:
        """`load` imports the framework in a thread and returns a factory, which makes the server on the
        event loop. `shares_ports`: other processes listen at the same ports.
        """
        self._shares_ports = shares_ports
        self._load_edge = load
        self._pool = pool
        self._sockets: dict[socket.socket, PortTls | None] = {}
        self._loading: asyncio.Task[None] | None = None
        self._edge: Edge | None = None

    def start(self, host: str, port: int, tls: PortTls | None = None) -> int:
        """Listen; returns the port, which is another than `port` when that is 0. Raises OSError.

        Called again for another port before the loop runs on.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, reuse_port=self._shares_ports
        )
        listening.setblocking(False)
        self._sockets[listening] = tls
        asyncio.get_running_loop().add_reader(listening, self._first_connection)
        return int(listening.getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end requests in process; idempotent."""
        sockets, self._sockets = self._sockets, {}
        if not sockets:
            return
        try:
            if self._loading is None:
                for listening in sockets:
                    asyncio.get_running_loop().remove_reader(listening)
            else:
                await asyncio.wait([self._loading])
            if self._edge is not None:
                await self._edge.close()
        finally:
            for listening in sockets:
                listening.close()  # also without waiters for the rest: the port is needed again

    def _first_connection(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        self._loading = loop.create_task(self._load(dict(self._sockets)), name="load http")

    async def _load(self, sockets: dict[socket.socket, PortTls | None]) -> None:
        try:
            make = await self._pool.run(self._load_edge)
            self._edge = make()
            for listening, tls in sockets.items():
                await self._edge.start(listening, tls)
            freeze_what_was_loaded_later()
        except Exception:
            _log.exception("the HTTP port cannot be served")
            for listening in sockets:
                listening.close()
