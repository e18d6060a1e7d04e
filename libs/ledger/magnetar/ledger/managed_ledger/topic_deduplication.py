"""A topic's side of deduplication's records: what was found on disk, and what is to be there from now on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.common.naming.position import LATEST, Position
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger, Done
from magnetar.ledger.managed_ledger.deduplication import DeduplicationRecord, DeduplicationSnapshot, Source
from magnetar.ledger.managed_ledger.topic_cursors import resolve


class TopicDeduplication:
    """`loaded` is the state that was found on disk, until `keep` or `drop` says what becomes of it."""

    __slots__ = ("_ledger", "loaded")

    def __init__(self, ledger: CursorLedger, loaded: DeduplicationSnapshot | None) -> None:
        self._ledger = ledger
        self.loaded = loaded
        if loaded is not None:
            ledger.deduplication = DeduplicationRecord(loaded.position, None)

    async def keep(self, source: Source, flush: Callable[[Done], None]) -> None:
        """From now on have the state that `source` gives on disk.

        Where there was none, the first snapshot is confirmed on return. Entries after the position of the
        snapshot on disk are kept from being trimmed. Raises StorageError when it was not written.
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
        """Write the state down within the cursors' flush interval."""
        record = self._ledger.deduplication
        if record is not None:
            record.due = True
            self._ledger.flush_soon()

    def drop(self) -> None:
        """Forget what is on disk, and let go what it kept from being trimmed. Idempotent."""
        self.loaded = None
        record = self._ledger.deduplication
        if record is not None and (record.source is not None or record.durable_mark < LATEST):
            record.source = None
            self.save()

    def holds_back(self, slowest: Position | None) -> Position | None:
        """The position that trimming must not pass; `slowest` is that of the cursors."""
        record = self._ledger.deduplication
        return slowest if record is None else min(slowest or LATEST, record.durable_mark)
