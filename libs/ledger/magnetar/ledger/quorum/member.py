"""The bookies that an open ledger is written to, each with what its writer knows of it."""

from __future__ import annotations

from magnetar.ledger.bookie_protocol.bookie_client import BookieClient


class Member:
    """A bookie at one position of the ensemble, from when it took the position to when it lost it."""

    __slots__ = ("bit", "bookie_id", "client", "dead", "held_from", "open", "position", "since_s")

    def __init__(self, position: int, client: BookieClient, since_s: float) -> None:
        self.position = position
        self.bit = 1 << position
        self.client = client
        self.bookie_id = client.bookie_id
        self.since_s = since_s
        self.open = True
        """Appends go to it as they come."""
        self.dead = False
        """Its answers count no more; another one, or a record of what it lacks, takes its place."""
        self.held_from = -1
        """Not open for a moment: to be sent again from this entry on."""
