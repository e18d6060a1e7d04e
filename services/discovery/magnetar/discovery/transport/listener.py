"""The listening socket of the binary protocol and its lookup connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.common.errors import TooManyRequests
from magnetar.common.obs.logs import get_logger
from magnetar.discovery.config import ListenerConfig
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.transport.connection import Connection, Environment
from magnetar.discovery.transport.connection_metrics import ACCEPTED, ASKING, CONNECTIONS, REFUSED_CONNECTIONS
from magnetar.discovery.transport.proxy import Proxy

log = get_logger(__name__)

BACKLOG: Final = 1024
"""Backlog of the listening socket."""


class Listener:
    """Accepts client connections and tracks those that are not proxied."""

    def __init__(
        self,
        config: ListenerConfig,
        services: Services,
        proxy: Proxy,
        spawn: Callable[[Coroutine[Any, Any, Any], str], object],
    ) -> None:
        self._config = config
        self._proxy = proxy
        self._environment = Environment(services, proxy, self, spawn, float(config.keep_alive_interval_s))
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Register an accepted connection, or refuse it at the limit."""
        ACCEPTED.inc()
        CONNECTIONS.labels(ASKING).inc()
        self._connections.add(connection)
        limit = self._config.connections_max
        if limit and len(self._connections) + len(self._proxy) > limit:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(
                TooManyRequests(f"too many connections (maxConcurrentInboundConnections={limit}); try again")
            )

    def discard(self, connection: Connection) -> None:
        CONNECTIONS.labels(ASKING).dec()
        self._connections.discard(connection)

    async def start(self) -> int:
        """Listen and return the port. Raises OSError when it is in use."""
        host = self._config.bind_address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._environment), host, self._config.service_port, backlog=BACKLOG
        )
        bound = int(self._server.sockets[0].getsockname()[1])
        log.info("listening", protocol="pulsar", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Stop accepting, and close every connection after writing its queued data."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.close()
        self._proxy.close()
        await self._server.wait_closed()
