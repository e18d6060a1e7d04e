"""Where an entry source reads: a topic's managed ledger, or its compacted view in front of that."""

from __future__ import annotations

from typing import Protocol

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult


class EntryReader(Protocol):
    """Entries in ascending order of their positions; see the same methods of `ManagedLedger`."""

    def next_position(self, after: Position) -> Position | None:
        """Returns where to read after `after`, up to the read limit; the entry there need not exist.

        None if there is nothing to read.
        """
        ...

    def read_cached(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        """Returns a run in memory that begins exactly at `start`; None without one."""
        ...

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        """Reads entries from the first existing one at or after `start`. Raises StorageError."""
        ...
