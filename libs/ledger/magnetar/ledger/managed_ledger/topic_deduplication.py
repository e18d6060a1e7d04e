"""Deduplication records of a topic: the state found on disk, and its future snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.common.naming.position import LATEST, Position
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger, Done
from magnetar.ledger.managed_ledger.deduplication import DeduplicationRecord, DeduplicationSnapshot, Source
from magnetar.ledger.managed_ledger.topic_cursors import resolve


class TopicDeduplication:
    """Deduplication persistence. `loaded` is the state found on disk, until `keep` or `drop` is called."""

    __slots__ = ("_ledger", "loaded")

    def __init__(self, ledger: CursorLedger, loaded: DeduplicationSnapshot | None) -> None:
        self._ledger = ledger
        self.loaded = loaded
        if loaded is not None:
            ledger.deduplication = DeduplicationRecord(loaded.position, None)

    async def keep(self, source: Source, flush: Callable[[Done], None]) -> None:
        """Persists the state returned by `source` from now on.

        If none was stored, the first snapshot is confirmed on return. Entries after the stored snapshot's
        position are protected from trimming. Raises StorageError if it was not written.
        """
        record, loaded = self._ledger.deduplication, self.loaded
        self.loaded = None
        if record is not None and loaded is not None:
            record.source = source
            return
        self._ledger.deduplication = DeduplicationRecord(source().position, source)
        self.save()
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flush(lambda error: resolve(confirmed, error))
        await confirmed

    def save(self) -> None:
        """Persists the state within the cursors' flush interval."""
        record = self._ledger.deduplication
        if record is not None:
            record.due = True
            self._ledger.flush_soon()

    def drop(self) -> None:
        """Removes the stored state and its protection from trimming. Idempotent."""
        self.loaded = None
        record = self._ledger.deduplication
        if record is not None and (record.source is not None or record.durable_mark < LATEST):
            record.source = None
            self.save()

    def holds_back(self, slowest: Position | None) -> Position | None:
        """Returns the position that trimming must not pass, given the slowest cursor's."""
        record = self._ledger.deduplication
        return slowest if record is None else min(slowest or LATEST, record.durable_mark)
