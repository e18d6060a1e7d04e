"""Accepts connections of a listening socket and hands over their sockets, before any protocol is made."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final, Protocol

from magnetar.common.obs.logs import get_logger

_log = get_logger(__name__)

ACCEPTS_A_TURN: Final = 64
"""Connections accepted in one turn of the event loop."""

PAUSE_S: Final = 1.0
"""Without accepting, after file descriptors or memory ran out."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Admit = Callable[[socket.socket, str, int], None]
"""Takes over a non-blocking socket with the host and port of its other end."""


class Gate(Protocol):
    """Says when nothing more should be accepted."""

    @property
    def full(self) -> bool: ...
    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` once connections can be accepted again."""


class SocketAcceptor:
    """Accepts connections of a listening socket, which stays the caller's to close. Used once."""

    def __init__(self, listening: socket.socket, admit: Admit, gate: Gate | None = None) -> None:
        self._listening = listening
        self._admit = admit
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._open = False

    def start(self) -> None:
        """Accept from now on."""
        self._listening.setblocking(False)
        self._open = True
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept nothing more. Idempotent."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._listening)
            if self._pause is not None:
                self._pause.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._gate is not None and self._gate.full:
                self._loop.remove_reader(self._listening)
                self._gate.when_free(self._resume)
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
            self._admit(sock, *peer[:2])

    def _resume(self) -> None:
        self._pause = None
        if self._open:
            self._loop.add_reader(self._listening, self._accept)
