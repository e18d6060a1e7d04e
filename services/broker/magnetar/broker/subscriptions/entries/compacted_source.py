"""The compacted view of a topic in front of its managed ledger, for consumers with `read_compacted`.

A position at or before the horizon is read from the view: the next live entry there. Later ones are read from
the topic. Each read decides by its position alone, so a view that changes between two reads, a failover and a
seek need nothing else.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

BEFORE_VIEW: Final = EARLIEST
"""The mark-delete position of a subscription that starts with the first entry of the view."""


class CompactedSource:
    """Reads the view, then the topic. Implements entry_reader.EntryReader."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: ManagedLedger) -> None:
        self._ledger = ledger

    def next_position(self, after: Position) -> Position | None:
        compaction = self._ledger.compaction
        if compaction.has_after(after):
            return Position(after.ledger_id, after.entry_id + 1)
        horizon = compaction.horizon
        return self._ledger.next_position(after if horizon is None else max(after, horizon))

    def read_cached(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        horizon = self._ledger.compaction.horizon
        if horizon is not None and start <= horizon:
            return None
        return self._ledger.read_cached(start, entries_max, bytes_max)

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        """Reads as `ManagedLedger.read`; a read that begins in the view ends with the view."""
        horizon = self._ledger.compaction.horizon
        if horizon is None or start > horizon:
            return await self._ledger.read(start, entries_max, bytes_max)
        return await self._ledger.compaction.read(start, entries_max, bytes_max)
