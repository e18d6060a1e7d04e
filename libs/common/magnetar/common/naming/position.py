"""Positions of entries in a topic."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """(ledger id, entry id), ordered as the topic's entries are: a topic's ledger ids only grow.

    As a mark-delete position it means "everything up to and including this is acknowledged"; entry id -1 is
    the position before a ledger's first entry. Text form `ledger:entry`.
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
"""Position before every entry, as clients send it (uint64 fields hold -1)."""

LATEST = Position(2**63 - 1, 2**63 - 1)
"""Position after every entry, as clients send it (Java's Long.MAX_VALUE twice)."""
