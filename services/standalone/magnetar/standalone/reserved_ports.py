"""Reserves ports at which only the processes started from here listen.

A reserved port is bound and not listened at, so that no connection of another process takes it while a
worker is being restarted. Processes of the same user bind it again with SO_REUSEPORT.
"""

from __future__ import annotations

import socket


class ReservedPorts:
    """Bound sockets; closed by `close`."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._sockets: list[socket.socket] = []

    def reserve(self, port: int) -> int:
        """Reserve a port, a free one for 0, and return it. Raises OSError."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind((self._host, port))
        except OSError:
            bound.close()
            raise
        self._sockets.append(bound)
        return int(bound.getsockname()[1])

    def close(self) -> None:
        """Release all; idempotent."""
        while self._sockets:
            self._sockets.pop().close()
