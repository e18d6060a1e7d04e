"""Connections that have not authenticated: how many there are, of all addresses and of each."""

from __future__ import annotations

from collections import Counter


class UnauthenticatedConnections:
    """Counts connections, which are any hashable objects, by their host."""

    def __init__(self, most: int, most_per_host: int) -> None:
        """0 is no limit."""
        self._most = most
        self._most_per_host = most_per_host
        self._hosts: dict[object, str] = {}
        self._by_host: Counter[str] = Counter()

    def add(self, connection: object, host: str) -> bool:
        """Count a connection; whether it is within the limits. It counts until `discard` in any case."""
        self._hosts[connection] = host
        self._by_host[host] += 1
        is_over = self._most and len(self._hosts) > self._most
        return not (is_over or (self._most_per_host and self._by_host[host] > self._most_per_host))

    def discard(self, connection: object) -> None:
        """Count a connection no longer, which has authenticated or is gone; idempotent."""
        host = self._hosts.pop(connection, None)
        if host is None:
            return
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
