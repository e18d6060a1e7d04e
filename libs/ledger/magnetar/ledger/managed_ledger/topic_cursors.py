"""The cursors of one topic: creation, deletion and lookup.

A durable cursor exists once its creation is confirmed, until its deletion is; in between it counts for
trimming, since a crash may decide either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from magnetar.common.errors import LogFull, NotEnoughBookies, StorageError, SubscriptionNotFound
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.cursor_ledger import CursorLedger
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans


class TopicCursors:
    """Cursors by name. Given positions must lie within the topic; set `ledger` before any other use."""

    __slots__ = ("_creating", "_deleting", "_ledger", "_spans", "_topic", "by_name")

    def __init__(self, topic: str, spans: LedgerSpans, by_name: dict[str, Cursor]) -> None:
        self._topic = topic
        self._spans = spans
        self.by_name = by_name
        self._creating: dict[str, Cursor] | None = None
        self._deleting: list[Cursor] | None = None

    @property
    def ledger(self) -> CursorLedger:
        """The ledger that persists durable cursors."""
        return self._ledger

    @ledger.setter
    def ledger(self, ledger: CursorLedger) -> None:
        self._ledger = ledger
        for cursor in self.by_name.values():
            cursor.on_dirty = ledger.dirtied

    def by_id(self, cursor_id: int) -> Cursor | None:
        """Returns a durable cursor by its id."""
        found = (each for each in self.by_name.values() if each.durable and each.cursor_id == cursor_id)
        return next(found, None)

    def has(self, cursor: Cursor) -> bool:
        """Whether this very cursor exists; another one may have its name after a deletion."""
        return self.by_name.get(cursor.name) is cursor

    async def create(self, name: str, position: Position, properties: dict[str, str]) -> Cursor:
        """Creates a durable cursor, confirmed on return; returns the existing one of that name, if any."""
        existing = self.by_name.get(name)
        if existing is not None:
            return existing
        if self._creating is None:
            self._creating = {}
        cursor = self._creating.get(name)
        if cursor is None:
            cursor = Cursor(name, self._spans, position, durable=True, properties=properties)
            self._creating[name] = cursor
            self._ledger.created(cursor)
        await self._flushed(lambda error: self._created(name, cursor, error))
        return cursor

    def _created(self, name: str, cursor: Cursor, error: StorageError | None) -> None:
        if self._creating is None or self._creating.get(name) is not cursor:
            return
        del self._creating[name]
        if error is None:
            self.by_name[name] = cursor
        else:
            # Whether it was written is unknown; it must not reappear as if it had been confirmed.
            self._ledger.deleted(cursor)

    def open_non_durable(self, name: str, position: Position) -> Cursor:
        """Creates a cursor that lives until its topic is unloaded or it is deleted."""
        cursor = self.by_name[name] = Cursor(name, self._spans, position, durable=False)
        return cursor

    def close(self, cursor: Cursor) -> None:
        """Removes a non-durable cursor."""
        if self.by_name.get(cursor.name) is cursor:
            del self.by_name[cursor.name]

    async def delete(self, name: str) -> None:
        """Deletes a cursor; confirmed on return."""
        cursor = self.by_name.pop(name, None)
        if cursor is None:
            raise SubscriptionNotFound(f"{self._topic} has no subscription {name!r}")
        if cursor.durable:
            self._deleting = [*(self._deleting or ()), cursor]
            self._ledger.deleted(cursor)
            await self._flushed(lambda error: self._deleted(cursor, error))

    def _deleted(self, cursor: Cursor, error: StorageError | None) -> None:
        if error is None:
            self._deleting = [other for other in self._deleting or () if other is not cursor] or None
        elif isinstance(error, LogFull | NotEnoughBookies):
            # The record is written once there is space, or bookies are available.
            self._ledger.flush(lambda error: self._deleted(cursor, error))

    async def reset(self, cursor: Cursor, position: Position) -> None:
        """Moves a cursor to `position` and drops its acknowledgements; confirmed on return."""
        cursor.replace(position)
        if cursor.durable:
            cursor.durable_mark = min(cursor.durable_mark, position)
            cursor.durable_acked = cursor.acked_entries
            self._ledger.reset(cursor)
            await self._flushed(None)

    async def describe(self, cursor: Cursor, properties: dict[str, str]) -> None:
        """Replaces a cursor's properties; confirmed on return if durable."""
        if self.by_name.get(cursor.name) is not cursor:
            raise SubscriptionNotFound(f"{self._topic} has no subscription {cursor.name!r}")
        cursor.properties = dict(properties)
        if cursor.durable:
            self._ledger.described(cursor)
            await self._flushed(None)

    def durable(self) -> Iterable[Cursor]:
        """Yields every durable cursor, including those being created."""
        yield from (cursor for cursor in self.by_name.values() if cursor.durable)
        if self._creating:
            yield from self._creating.values()

    def needed(self) -> Iterator[tuple[str, Position]]:
        """Yields the name of every durable cursor, also of those being deleted, and the position after which
        it needs entries, on disk and in memory.
        """
        for cursor in (*self.durable(), *(self._deleting or ())):
            yield cursor.name, min(cursor.durable_mark, cursor.mark_delete)

    async def _flushed(self, then: Callable[[StorageError | None], None] | None) -> None:
        """Writes pending records; `then` is called even if the caller was cancelled."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: StorageError | None) -> None:
            if then is not None:
                then(error)
            resolve(confirmed, error)

        self._ledger.flush(done)
        await confirmed


def resolve(future: asyncio.Future[None], error: StorageError | None) -> None:
    """Completes a future that its waiter may have abandoned."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
