"""What a task reads a ledger through, and how much at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from magnetar.ledger.ledger_store import Run

CHUNK_BYTES: Final = 4 << 20
"""Of entries, read at a time."""

UNIT_BYTES: Final = 4 << 20
"""Of entries, made into rows of a table at a time."""

PATIENCE_S: Final = 90.0
"""How long a task waits for entries that nobody gives now: a broker or bookie may be starting again."""


class Entries(Protocol):
    """Reads one ledger."""

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        """All of them, both inclusive, in order and without gaps, some at a time.

        Raises StorageError when one of them is lost; a retriable one when it cannot be read now.
        """
        ...
