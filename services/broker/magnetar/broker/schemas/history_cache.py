"""Histories of recently used topics, kept while metadata is watched; concurrent readers share one listing.

Ten thousand producers that reconnect to a topic at once cost one listing. Watches arrive late, so a cached
history may be a moment old. Listings are numbered: a caller that needs a history at least as new as its own
request asks for one after the present number.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from magnetar.broker.schemas.history import SchemaHistory, history_of
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.topic_name import TopicName

CACHED_BYTES_MAX: Final = 32 << 20
"""Maximum bytes of the histories in the cache; a topic with more is listed each time."""

_TOPIC_BYTES: Final = 1_024
"""Bytes that a topic counts besides its versions."""


class HistoryCache:
    """Histories by partitioned topic; partitions share that of their topic."""

    def __init__(self, metadata: MetadataStore, keys: Keys, bytes_max: int = CACHED_BYTES_MAX) -> None:
        self._metadata = metadata
        self._keys = keys
        self._bytes_max = bytes_max
        self._known: OrderedDict[TopicName, SchemaHistory] = OrderedDict()
        self._known_bytes = 0
        self._reading: dict[TopicName, asyncio.Task[SchemaHistory]] = {}
        self._watched = False
        self.serial = 0
        """Number of the listing that began last."""

    async def follow(self) -> None:
        """Keeps histories while metadata is watched, until the caller cancels it or the store is closed.

        Without it nothing is kept, and only concurrent readers share a listing.
        """
        await follow_for_ever("schemas", self._follow)

    def known(self, topic: TopicName) -> SchemaHistory | None:
        """Returns the cached history of a topic, if there is one."""
        history = self._known.get(topic.base)
        if history is not None:
            self._known.move_to_end(topic.base)
        return history

    async def get(self, topic: TopicName, after: int = 0) -> SchemaHistory:
        """Returns the history of a topic by a listing that began after listing number `after`.

        It is the cached one where that is new enough. Concurrent calls share a listing. Raises MetadataError.
        """
        while True:
            history = self.known(topic)
            if history is None or history.serial <= after:
                history = await self._shared(topic.base)
            if history.serial > after:
                return history

    async def _shared(self, base: TopicName) -> SchemaHistory:
        reading = self._reading.get(base)
        if reading is None:
            reading = self._reading[base] = asyncio.create_task(self._read(base), name=f"schemas of {base}")
            reading.add_done_callback(_retrieve)
        # Shielded: cancelling one caller must not cancel the listing for the others.
        return await asyncio.shield(reading)

    def forget(self, topic: TopicName) -> None:
        """Drops the history of a topic that was changed; callers from now on read it again."""
        self._drop(topic.base)
        self._reading.pop(topic.base, None)

    async def _read(self, base: TopicName) -> SchemaHistory:
        this = asyncio.current_task()
        self.serial += 1
        serial = self.serial
        try:
            history = history_of(await self._metadata.children(self._keys.schemas_prefix(base)), serial)
            if self._watched and self._reading.get(base) is this:  # otherwise it was changed meanwhile
                self._keep(base, history)
        finally:
            if self._reading.get(base) is this:
                del self._reading[base]
        return history

    def _keep(self, base: TopicName, history: SchemaHistory) -> None:
        self._drop(base)
        size = _size(history)
        if size > self._bytes_max:
            return
        self._known[base] = history
        self._known_bytes += size
        while self._known_bytes > self._bytes_max:
            self._drop(next(iter(self._known)))

    def _drop(self, base: TopicName) -> None:
        history = self._known.pop(base, None)
        if history is not None:
            self._known_bytes -= _size(history)

    async def _follow(self) -> None:
        """Watches all schemas until the watch fails or the store is closed."""
        changes = self._metadata.watch(self._keys.schemas_family_prefix)
        try:
            self._forget_all()
            self._watched = True
            async for change in changes:
                self._changed(self._keys.topic_of_schema(change.key), change.version)
        finally:
            self._watched = False
            self._forget_all()
            await changes.aclose()

    def _changed(self, topic: TopicName, revision: int) -> None:
        known = self._known.get(topic.base)
        if known is None or known.revision < revision:
            self.forget(topic)

    def _forget_all(self) -> None:
        self._known.clear()
        self._known_bytes = 0
        self._reading.clear()


def _size(history: SchemaHistory) -> int:
    """Returns the bytes of a history: its records and its definitions both hold the stored data."""
    return 2 * history.byte_size + _TOPIC_BYTES


def _retrieve(reading: asyncio.Task[SchemaHistory]) -> None:
    """Marks the error of a listing as seen, because every caller may have been cancelled."""
    if not reading.cancelled():
        reading.exception()
