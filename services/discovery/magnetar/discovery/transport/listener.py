"""The listening socket of the binary protocol and its lookup connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from magnetar.common.errors import TooManyRequests
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.unauthenticated import UnauthenticatedConnections
from magnetar.discovery.config import ListenerConfig
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.transport.connection import Connection, Environment
from magnetar.discovery.transport.connection_metrics import ACCEPTED, ASKING, CONNECTIONS, REFUSED_CONNECTIONS
from magnetar.discovery.transport.proxy import Proxy

if TYPE_CHECKING:  # without a TLS port or load balancers there is no use for them
    from magnetar.common.security.proxy_protocol.header import Client
    from magnetar.common.security.proxy_protocol.port import PlainAcceptor, ProxiedPort
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
        self._unauthenticated = UnauthenticatedConnections(
            self._authentication.unauthenticated_connections_max,
            self._authentication.unauthenticated_connections_per_ip_max,
        )
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._acceptors: list[tuple[socket.socket, TlsAcceptor | PlainAcceptor]] = []
        self._proxied = _proxied(services.config.proxy_protocol, self._connect)

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> None:
        """Register an accepted connection, or refuse it at the limit."""
        ACCEPTED.inc()
        CONNECTIONS.labels(ASKING).inc()
        self._connections.add(connection)
        is_within = self._environment.services.authenticator is None or self._unauthenticated.add(
            connection, connection.host
        )
        limit = self._config.connections_max
        if limit and len(self._connections) + len(self._proxy) > limit:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(
                TooManyRequests(f"too many connections (maxConcurrentInboundConnections={limit}); try again")
            )
        elif not is_within:
            REFUSED_CONNECTIONS.inc()
            connection.close()

    def admit(self, connection: Connection) -> None:
        """The connection has authenticated or is gone: it counts no longer against these limits."""
        self._unauthenticated.discard(connection)

    def discard(self, connection: Connection) -> None:
        self.admit(connection)
        CONNECTIONS.labels(ASKING).dec()
        self._connections.discard(connection)

    def start_tls(self, tls: PortTls) -> int:
        """Listen with TLS; returns the port. Raises OSError when it is taken."""
        from magnetar.common.security.tls.accepting import TlsAcceptor

        listening = self._listening_socket(self._config.service_port_tls or 0)
        self._accept(listening, TlsAcceptor(listening, self._connect, tls, self._proxied))
        bound = int(listening.getsockname()[1])
        log.info("listening", protocol="pulsar+ssl", host=self._config.bind_address, port=bound)
        return bound

    def _connect(self, client: Client | None = None) -> Connection:
        return Connection(self._environment, client)

    def _listening_socket(self, port: int) -> socket.socket:
        host = self._config.bind_address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=BACKLOG)

    def _accept(self, listening: socket.socket, acceptor: TlsAcceptor | PlainAcceptor) -> None:
        self._acceptors.append((listening, acceptor))
        acceptor.start()

    def close_revoked(self) -> None:
        """Close connections whose credentials were revoked."""
        for connection in list(self._connections):
            connection.close_if_revoked()

    async def start(self, port: int) -> int:
        """Listen without TLS and return the port. Raises OSError when it is in use."""
        host = self._config.bind_address
        if self._proxied is not None:
            from magnetar.common.security.proxy_protocol.port import PlainAcceptor

            listening = self._listening_socket(port)
            self._accept(listening, PlainAcceptor(listening, self._proxied))
            bound = int(listening.getsockname()[1])
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connect, host, port, backlog=BACKLOG)
            bound = int(self._server.sockets[0].getsockname()[1])
        log.info("listening", protocol="pulsar", host=host, port=bound)
        return bound

    async def close(self) -> None:
        """Stop accepting, and close every connection after writing its queued data."""
        for listening, acceptor in self._acceptors:
            acceptor.close()
            listening.close()
        if self._proxied is not None:
            self._proxied.headers.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        self._proxy.close()
        if self._server is not None:
            await self._server.wait_closed()


def _proxied(
    config: ProxyProtocolConfig, connect: Callable[[Client | None], Connection]
) -> ProxiedPort | None:
    if not config.enabled:
        return None
    from magnetar.common.security.proxy_protocol.port import ProxiedPort
    from magnetar.common.security.proxy_protocol.reception import HeaderReception

    return ProxiedPort(HeaderReception(config.networks), connect)
