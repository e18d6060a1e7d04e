"""Ports whose connections from load balancers begin with a PROXY header."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.common.obs.logs import get_logger
from magnetar.common.security.proxy_protocol.header import Client
from magnetar.common.security.proxy_protocol.reception import HeaderReception
from magnetar.common.security.socket_acceptor import SocketAcceptor

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ProxiedPort:
    """A port with PROXY headers, with TLS or without."""

    headers: HeaderReception
    factory: Callable[[Client | None], asyncio.BaseProtocol]
    """Makes the protocol of a connection: of the client in its header, None without one."""


class PlainAcceptor:
    """Accepts connections without TLS of a listening socket, which stays the caller's to close. Used once."""

    def __init__(self, listening: socket.socket, proxied: ProxiedPort) -> None:
        self._proxied = proxied
        self._acceptor = SocketAcceptor(listening, self._admit)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept nothing more. Idempotent."""
        self._acceptor.close()

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        self._proxied.headers.admit(sock, host, port, self._connect)

    def _connect(self, sock: socket.socket, client: Client | None) -> None:
        task = asyncio.get_running_loop().create_task(self._connected(sock, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, sock: socket.socket, client: Client | None) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._proxied.factory(client), sock)
        except OSError as error:
            sock.close()
            _log.debug("connection ended while it was accepted", reason=error.strerror or str(error))
