"""The listening sockets of the binary protocol and the connections they accepted."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.client_endings import ClientEnd, ClientKind, EndCode
from magnetar.broker.handlers.client import Services
from magnetar.broker.transport.connection import Connection
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.unauthenticated import UnauthenticatedConnections
from prometheus_client import Counter

if TYPE_CHECKING:  # without a TLS port or load balancers there is no use for them
    from magnetar.common.security.proxy_protocol.header import Client
    from magnetar.common.security.proxy_protocol.port import ProxiedPort
    from magnetar.common.security.tls.accepting import PortTls

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


class _Port(Protocol):
    """One listening socket."""

    def stop_accepting(self) -> None: ...
    async def wait_closed(self) -> None:
        """Until the port is free; after `stop_accepting`."""


class _Acceptor(Protocol):
    def start(self) -> None: ...
    def close(self) -> None: ...


class Listener:
    """Accepts client connections at any number of ports; knows those that live."""

    def __init__(self, services: Services, *, shares_ports: bool = False) -> None:
        """`shares_ports`: other processes listen at the same ports; the kernel spreads connections."""
        self._services = services
        self._shares_ports = shares_ports
        self._connections: set[Connection] = set()
        self._ports: list[_Port] = []
        self._by_host: Counts[str] = Counts()
        authentication = services.config.authentication
        self._unauthenticated = UnauthenticatedConnections(
            authentication.unauthenticated_connections_max,
            authentication.unauthenticated_connections_per_ip_max,
        )
        self._proxied = _proxied(services.config.proxy_protocol, self._connect)
        self.accepted = 0
        """Connections accepted since the start, including closed ones."""

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections))

    def add(self, connection: Connection) -> None:
        """Registers an accepted connection; refuses it at once over brokerMaxConnections."""
        self.accepted += 1
        connection.client.connection_id = self.accepted
        self._connections.add(connection)
        config = self._services.config.listener
        limit, per_host = config.connections_max, config.connections_per_ip_max
        self._by_host[connection.host] += 1
        is_within = self._services.authenticator is None or self._unauthenticated.add(
            connection, connection.host
        )
        if limit and len(self._connections) > limit:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(f"too many connections (brokerMaxConnections={limit})")
        elif per_host and self._by_host[connection.host] > per_host:
            REFUSED_CONNECTIONS.inc()
            connection.refuse(f"too many connections of one address (brokerMaxConnectionsPerIp={per_host})")
        elif not is_within:
            CLOSED_UNAUTHENTICATED.inc()
            connection.close("too many connections that have not authenticated", EndCode.CONNECTION_LIMIT)

    def admit(self, connection: Connection) -> None:
        """A connection has authenticated: it counts no more among those that have not."""
        self._unauthenticated.discard(connection)

    def discard(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self.admit(connection)
            self._by_host[connection.host] -= 1
            if not self._by_host[connection.host]:
                del self._by_host[connection.host]

    async def start(self, host: str, port: int) -> int:
        """Listen without TLS; returns the port, which differs from `port` only for 0.

        Raises OSError when it is taken.
        """
        bound = await self._listen(host, port)
        log.info("listening", protocol="pulsar", host=host, port=bound)
        return bound

    async def _listen(self, host: str, port: int) -> int:
        if self._proxied is not None:
            opened = _OwnPort(host, port, partial(_plain_acceptor, self._proxied), shared=self._shares_ports)
            self._ports.append(opened)
            return opened.number
        loop = asyncio.get_running_loop()
        shared = self._shares_ports or None
        server = await loop.create_server(self._connect, host, port, backlog=BACKLOG, reuse_port=shared)
        self._ports.append(_PlainPort(server))
        return int(server.sockets[0].getsockname()[1])

    def start_tls(self, host: str, port: int, tls: PortTls) -> int:
        """Listen with TLS; as `start`."""
        tls.handshakes.on_failed = self._handshake_failed
        accept = partial(_tls_acceptor, self._connect, tls, self._proxied)
        opened = _OwnPort(host, port, accept, shared=self._shares_ports)
        self._ports.append(opened)
        log.info("listening", protocol="pulsar+ssl", host=host, port=opened.number)
        return opened.number

    def _handshake_failed(self, address: str, result: str, reason: str) -> None:
        """Records a client whose TLS handshake failed, on any port of the process."""
        end = ClientEnd(
            kind=ClientKind.CONNECTION,
            code=EndCode.HANDSHAKE_FAILED,
            at_ms=self._services.clock.wall_ms(),
            address=address,
            error=result,
            message=reason,
        )
        self._services.endings.note(end)

    def _connect(self, client: Client | None = None) -> Connection:
        return Connection(self._services, self, client)

    def stop_accepting(self) -> None:
        for port in self._ports:
            port.stop_accepting()

    async def close(self) -> None:
        """Closes every connection after its queued bytes were written."""
        self.stop_accepting()
        if self._proxied is not None:
            self._proxied.headers.close()
        for connection in self:
            connection.close("the broker is shutting down", EndCode.BROKER_STOPPING)
        for port in self._ports:
            await port.wait_closed()


class _PlainPort:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    def stop_accepting(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()


class _OwnPort:
    """Accepts by itself: with TLS, and where load balancers send PROXY headers."""

    def __init__(
        self, host: str, port: int, make: Callable[[socket.socket], _Acceptor], *, shared: bool
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
        self.number = int(self._socket.getsockname()[1])
        self._acceptor = make(self._socket)
        self._acceptor.start()

    def stop_accepting(self) -> None:
        self._acceptor.close()
        self._socket.close()

    async def wait_closed(self) -> None:
        """The socket is closed already."""


def _proxied(
    config: ProxyProtocolConfig, connect: Callable[[Client | None], Connection]
) -> ProxiedPort | None:
    if not config.enabled:
        return None
    from magnetar.common.security.proxy_protocol.port import ProxiedPort
    from magnetar.common.security.proxy_protocol.reception import HeaderReception

    return ProxiedPort(HeaderReception(config.networks), connect)


def _plain_acceptor(proxied: ProxiedPort, listening: socket.socket) -> _Acceptor:
    from magnetar.common.security.proxy_protocol.port import PlainAcceptor

    return PlainAcceptor(listening, proxied)


def _tls_acceptor(
    connect: Callable[[], Connection], tls: PortTls, proxied: ProxiedPort | None, listening: socket.socket
) -> _Acceptor:
    from magnetar.common.security.tls.accepting import TlsAcceptor

    return TlsAcceptor(listening, connect, tls, proxied)
