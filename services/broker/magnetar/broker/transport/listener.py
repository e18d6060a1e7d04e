"""The listening socket of the binary protocol and the connections it accepted."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter as Counts
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
    "Connections over brokerMaxConnections or brokerMaxConnectionsPerIp.",
    registry=REGISTRY,
)


CLOSED_UNAUTHENTICATED = Counter(
    "magnetar_unauthenticated_connections_closed_total",
    "Connections closed because too many had not authenticated (magnetarMaxUnauthenticatedConnections).",
    registry=REGISTRY,
)


class Listener:
    """Accepts client connections and tracks the open ones."""

    def __init__(self, services: Services, tls: ssl.SSLContext | None = None) -> None:
        self._services = services
        self._tls = tls
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._by_host: Counts[str] = Counts()
        self._unauthenticated: set[Connection] = set()
        self._unauthenticated_by_host: Counts[str] = Counts()
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
        config = self._services.config.listener
        limit, per_host = config.connections_max, config.connections_per_ip_max
        self._by_host[connection.host] += 1
        if self._services.authenticator is not None:
            self._unauthenticated.add(connection)
            self._unauthenticated_by_host[connection.host] += 1
        if limit and len(self._connections) > limit:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(f"too many connections (brokerMaxConnections={limit})")
        elif per_host and self._by_host[connection.host] > per_host:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(f"too many connections of one address (brokerMaxConnectionsPerIp={per_host})")
        elif connection in self._unauthenticated and self._are_too_many_unauthenticated(connection.host):
            CLOSED_UNAUTHENTICATED.inc()
            connection.close("too many connections that have not authenticated")

    def admit(self, connection: Connection) -> None:
        """A connection has authenticated: it counts no more among those that have not."""
        if connection in self._unauthenticated:
            self._unauthenticated.discard(connection)
            _count_down(self._unauthenticated_by_host, connection.host)

    def discard(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.admit(connection)
            _count_down(self._by_host, connection.host)

    def _are_too_many_unauthenticated(self, host: str) -> bool:
        config = self._services.config.authentication
        limit, per_host = (
            config.unauthenticated_connections_max,
            config.unauthenticated_connections_per_ip_max,
        )
        return bool(
            (limit and len(self._unauthenticated) > limit)
            or (per_host and self._unauthenticated_by_host[host] > per_host)
        )

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


def _count_down(counts: Counts[str], host: str) -> None:
    counts[host] -= 1
    if counts[host] <= 0:
        del counts[host]
