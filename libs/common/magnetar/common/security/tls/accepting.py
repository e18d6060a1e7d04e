"""Accepts connections of a TLS port itself: asyncio and uvloop do not tell of handshakes that fail."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.common.obs.logs import get_logger
from magnetar.common.security.tls.handshakes import Arrival, Handshakes
from magnetar.common.security.tls.server_context import ServerTls

_log = get_logger(__name__)

ACCEPTS_A_TURN: Final = 64
"""Connections accepted in one turn of the event loop."""

PAUSE_S: Final = 1.0
"""Without accepting, after file descriptors or memory ran out."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class PortTls:
    """TLS of one port: its certificates, and the handshakes of the process."""

    server: ServerTls
    handshakes: Handshakes


class TlsAcceptor:
    """Accepts connections of a listening socket, which stays the caller's to close. Used once."""

    def __init__(
        self, listening: socket.socket, factory: Callable[[], asyncio.BaseProtocol], tls: PortTls
    ) -> None:
        """`factory` makes a protocol for each handshake; it is connected when the handshake is complete."""
        self._listening = listening
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._open = False

    def start(self) -> None:
        """Accept from now on."""
        self._listening.setblocking(False)
        self._open = True
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept nothing more; handshakes in process go on. Idempotent."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._listening)
            if self._pause is not None:
                self._pause.cancel()

    def _accept(self) -> None:
        handshakes = self._tls.handshakes
        for _ in range(ACCEPTS_A_TURN):
            if handshakes.full:
                self._loop.remove_reader(self._listening)
                handshakes.when_free(self._resume)
                return
            try:
                sock, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.error("cannot accept connections", reason=error.strerror, pause_s=PAUSE_S)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
                return
            sock.setblocking(False)
            host, port = peer[:2]
            context = self._tls.server.handshake_context
            handshakes.admit(Arrival(sock, f"{host}:{port}", host, context, self._factory))

    def _resume(self) -> None:
        self._pause = None
        if self._open:
            self._loop.add_reader(self._listening, self._accept)
