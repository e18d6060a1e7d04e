"""The listening socket of the binary protocol and the connections it accepted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

from magnetar.broker.handlers.client import Services
from magnetar.broker.transport.connection import Connection
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

log = get_logger(__name__)

BACKLOG = 1024
"""Maximum connections that wait to be accepted."""

REFUSED_CONNECTIONS = Counter(
    "magnetar_refused_connections_total",
    "Connections refused because of brokerMaxConnections.",
    registry=REGISTRY,
)


class Listener:
    """Accepts client connections and tracks the open ones."""

    def __init__(self, services: Services, tls: ssl.SSLContext | None = None) -> None:
        self._services = services
        self._tls = tls
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self.accepted = 0
        """Connections accepted since the start, including closed ones."""

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections))

    def add(self, connection: Connection) -> None:
        """Registers an accepted connection; refuses it at once over brokerMaxConnections."""
        self.accepted += 1
        self._connections.add(connection)
        limit = self._services.config.listener.connections_max
        if limit and len(self._connections) > limit:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(f"too many connections (brokerMaxConnections={limit})")

    def discard(self, connection: Connection) -> None:
        self._connections.discard(connection)

    async def start(self, host: str, port: int) -> int:
        """Starts listening; returns the port, which differs from `port` only for 0. Raises OSError when it is
        in use.
        """

        def connect() -> Connection:
            return Connection(self._services, self)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connect, host, port, ssl=self._tls, backlog=BACKLOG)
        bound = int(self._server.sockets[0].getsockname()[1])
        log.info("listening", protocol="pulsar", host=host, port=bound)
        return bound

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Closes every connection after its queued bytes were written."""
        self.stop_accepting()
        for connection in self:
            connection.close("the broker is shutting down")
        if self._server is not None:
            await self._server.wait_closed()
