"""Limit on the entries to non-persistent topics that one connection has in process.

Entries are in process during the turn of the event loop that received them: receipts leave at its end.
Entries beyond the limit within one turn are dropped (messaging contract, section 18).
"""

from __future__ import annotations

import asyncio

from magnetar.broker.peer import Peer


class InProcess:
    """Counts the entries in process for all connections of a broker."""

    __slots__ = ("_by_peer", "_entries_max")

    def __init__(self, entries_max: int) -> None:
        self._by_peer: dict[Peer, int] = {}
        self._entries_max = entries_max

    def take(self, peer: Peer, entries: int) -> int:
        """Admits up to `entries` more entries of a connection; returns the number admitted."""
        by_peer = self._by_peer
        if not by_peer:
            asyncio.get_running_loop().call_soon(by_peer.clear)
        before = by_peer.get(peer, 0)
        taken = min(entries, self._entries_max - before)
        by_peer[peer] = before + taken
        return taken
