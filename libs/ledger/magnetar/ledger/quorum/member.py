"""The bookies of an open ledger's ensemble, with the writer's state of each."""

from __future__ import annotations

from magnetar.ledger.bookie_protocol.bookie_client import BookieClient


class Member:
    """A bookie at one position of the ensemble, while it holds the position."""

    __slots__ = ("bit", "bookie_id", "client", "dead", "held_from", "open", "position", "since_s")

    def __init__(self, position: int, client: BookieClient, since_s: float) -> None:
        self.position = position
        self.bit = 1 << position
        self.client = client
        self.bookie_id = client.bookie_id
        self.since_s = since_s
        self.open = True
        """Whether appends are sent to it immediately."""
        self.dead = False
        """Whether its answers no longer count; it will be replaced, or its missing entries recorded."""
        self.held_from = -1
        """While not open: the first entry to be sent again."""
