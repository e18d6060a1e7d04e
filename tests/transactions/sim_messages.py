"""Entries of the simulation: the names of the messages in them, and which of those are acknowledged."""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.position import Position as LedgerPosition

from tests.transactions.history import Position

_SEPARATOR: Final = b" "


def entry_of(names: list[str]) -> bytes:
    """Returns an entry with these messages, a batch if they are several."""
    return _SEPARATOR.join(name.encode() for name in names)


def names_of(entry: bytes) -> list[str]:
    """Returns the messages of an entry."""
    return [name.decode() for name in entry.split(_SEPARATOR)]


def positions_of(at: LedgerPosition, count: int) -> list[Position]:
    """Returns the positions of the messages of an entry."""
    if count == 1:
        return [(at.ledger_id, at.entry_id, -1)]
    return [(at.ledger_id, at.entry_id, index) for index in range(count)]
