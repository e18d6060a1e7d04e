"""The listening socket of the binary protocol and its lookup connections."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import TooManyRequests
from magnetar.common.obs.logs import get_logger
from magnetar.discovery.config import ListenerConfig
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.transport.connection import Connection, Environment
from magnetar.discovery.transport.connection_metrics import ACCEPTED, ASKING, CONNECTIONS, REFUSED_CONNECTIONS
from magnetar.discovery.transport.proxy import Proxy

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.accepting import PortTls, TlsAcceptor

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
        self._authentication = services.config.authentication
        keep_alive_s = float(config.keep_alive_interval_s)
        connect_timeout_s = (
            keep_alive_s if services.authenticator is None else self._authentication.connect_timeout_ms / 1000
        )
        self._environment = Environment(services, proxy, self, spawn, keep_alive_s, connect_timeout_s)
        self._unauthenticated: set[Connection] = set()
        self._unauthenticated_by_host: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._tls_socket: socket.socket | None = None
        self._acceptor: TlsAcceptor | None = None

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
        elif self._are_too_many_unauthenticated(connection):
            REFUSED_CONNECTIONS.inc()
            connection.close()

    def _are_too_many_unauthenticated(self, connection: Connection) -> bool:
        if self._environment.services.authenticator is None:
            return False
        self._unauthenticated.add(connection)
        self._unauthenticated_by_host[connection.host] += 1
        limit = self._authentication.unauthenticated_connections_max
        per_host = self._authentication.unauthenticated_connections_per_ip_max
        return bool(
            (limit and len(self._unauthenticated) > limit)
            or (per_host and self._unauthenticated_by_host[connection.host] > per_host)
        )

    def admit(self, connection: Connection) -> None:
        """The connection has authenticated or is gone: it counts no longer against these limits."""
        if connection in self._unauthenticated:
            self._unauthenticated.discard(connection)
            self._unauthenticated_by_host[connection.host] -= 1
            if not self._unauthenticated_by_host[connection.host]:
                del self._unauthenticated_by_host[connection.host]

    def discard(self, connection: Connection) -> None:
        self.admit(connection)
        CONNECTIONS.labels(ASKING).dec()
        self._connections.discard(connection)

    def start_tls(self, tls: PortTls) -> int:
        """Listen with TLS; returns the port. Raises OSError when it is taken."""
        from magnetar.common.security.tls.accepting import TlsAcceptor

        host, port = self._config.bind_address, self._config.service_port_tls or 0
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._tls_socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        bound = int(self._tls_socket.getsockname()[1])
        self._acceptor = TlsAcceptor(self._tls_socket, lambda: Connection(self._environment), tls)
        self._acceptor.start()
        log.info("listening", protocol="pulsar+ssl", host=host, port=bound)
        return bound

    def close_revoked(self) -> None:
        """Close connections whose credentials were revoked."""
        for connection in list(self._connections):
            connection.close_if_revoked()

    async def start(self, port: int) -> int:
        """Listen without TLS and return the port. Raises OSError when it is in use."""
        host = self._config.bind_address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._environment), host, port, backlog=BACKLOG
        )
        bound = int(self._server.sockets[0].getsockname()[1])
        log.info("listening", protocol="pulsar", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Stop accepting, and close every connection after writing its queued data."""
        if self._acceptor is not None and self._tls_socket is not None:
            self._acceptor.close()
            self._tls_socket.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        self._proxy.close()
        if self._server is not None:
            await self._server.wait_closed()
