"""Accepts connections of a TLS port itself: asyncio and uvloop do not tell of handshakes that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from magnetar.common.security.socket_acceptor import SocketAcceptor
from magnetar.common.security.tls.handshakes import Arrival, Handshakes
from magnetar.common.security.tls.server_context import ServerTls

if TYPE_CHECKING:  # without load balancers there is no use for it
    from magnetar.common.security.proxy_protocol.header import Client
    from magnetar.common.security.proxy_protocol.port import ProxiedPort


@dataclass(frozen=True, slots=True)
class PortTls:
    """TLS of one port: its certificates, and the handshakes of the process."""

    server: ServerTls
    handshakes: Handshakes


class TlsAcceptor:
    """Accepts connections of a listening socket, which stays the caller's to close. Used once."""

    def __init__(
        self,
        listening: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        tls: PortTls,
        proxied: ProxiedPort | None = None,
    ) -> None:
        """`factory` makes a protocol for each handshake; it is connected when the handshake is complete.

        With `proxied`, connections of load balancers have a PROXY header before their handshake.
        """
        self._factory = factory
        self._tls = tls
        self._proxied = proxied
        self._acceptor = SocketAcceptor(listening, self._admit, tls.handshakes)

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept nothing more; handshakes in process go on. Idempotent."""
        self._acceptor.close()

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        if self._proxied is None:
            self._shake_hands(host, port, sock, None)
        else:
            self._proxied.headers.admit(sock, host, port, partial(self._shake_hands, host, port))

    def _shake_hands(self, host: str, port: int, sock: socket.socket, client: Client | None) -> None:
        factory = self._factory
        if client is not None and self._proxied is not None:
            host, port = client.host, client.port
            factory = partial(self._proxied.factory, client)
        context = self._tls.server.handshake_context
        self._tls.handshakes.admit(Arrival(sock, f"{host}:{port}", host, context, factory))
