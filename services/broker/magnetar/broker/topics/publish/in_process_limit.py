"""How many entries to non-persistent topics one connection has in process, which is bounded.

In process is what was taken in this turn of the event loop: receipts leave at its end. What a connection
sends beyond the bound within one turn is dropped (messaging contract, section 18).
"""

from __future__ import annotations

import asyncio

from magnetar.broker.peer import Peer


class InProcess:
    """Counts for all connections of a broker."""

    __slots__ = ("_by_peer", "_entries_max")

    def __init__(self, entries_max: int) -> None:
        self._by_peer: dict[Peer, int] = {}
        self._entries_max = entries_max

    def take(self, peer: Peer, entries: int) -> int:
        """How many of so many more entries of this connection may be taken; they are in process then."""
        by_peer = self._by_peer
        if not by_peer:
            asyncio.get_running_loop().call_soon(by_peer.clear)
        before = by_peer.get(peer, 0)
        taken = min(entries, self._entries_max - before)
        by_peer[peer] = before + taken
        return taken
