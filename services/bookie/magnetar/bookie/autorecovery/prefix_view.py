"""An in-memory view of a metadata prefix, kept current by a watch; listed again after a lost watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, WatchLost
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.obs.logs import get_logger

K = TypeVar("K")
V = TypeVar("V")

log = get_logger(__name__)

RETRY_AFTER_S: Final = 0.2
RETRY_AFTER_MAX_S: Final = 5.0

ITEMS_AT_ONCE: Final = 256


class PrefixView(Generic[K, V]):
    """The result of `parse(key, value, version)` for each key under `prefix`.

    `on_change(key, value)` is called on the loop for each key that is added, changed or removed (None). While
    metadata is unavailable the view stays unchanged. Values that cannot be parsed are logged and omitted.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        prefix: str,
        key_of: Callable[[str], K],
        parse: Callable[[bytes, int], V],
        on_change: Callable[[K, V | None], None],
    ) -> None:
        self._metadata = metadata
        self._prefix = prefix
        self._key_of = key_of
        self._parse = parse
        self._on_change = on_change
        self._items: dict[K, V] = {}
        self.listed = asyncio.Event()
        """Set after the first listing of the prefix."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    async def run(self) -> None:
        """Follows the prefix until the store is closed."""
        wait_s = RETRY_AFTER_S
        while True:
            try:
                await self._follow()
                return
            except WatchLost:
                wait_s = RETRY_AFTER_S
            except MetadataError as error:
                log.warning("metadata cannot be listed", prefix=self._prefix, reason=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)

    async def _follow(self) -> None:
        watch = self._metadata.watch(self._prefix)
        try:
            listing = await self._metadata.children(self._prefix)
            gone = dict.fromkeys(self._items)
            for number, item in enumerate(listing.items, 1):
                key = self._key_of(item.key)
                gone.pop(key, None)
                self._apply(key, item.key, item.value, item.version)
                if number % ITEMS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # there may be very many
            for key in gone:
                self._apply(key, "", None, 0)
            self.listed.set()
            async for event in watch:
                if event.version > listing.revision:
                    self._apply(self._key_of(event.key), event.key, event.value, event.version)
        finally:
            await watch.aclose()

    def _apply(self, key: K, name: str, data: bytes | None, version: int) -> None:
        value: V | None = None
        if data is not None:
            try:
                value = self._parse(data, version)
            except (DataCorruption, UnsupportedFormat) as error:
                log.error("a metadata value cannot be read", key=name, reason=str(error))
        if value is None:
            if self._items.pop(key, None) is not None:
                self._on_change(key, None)
        elif self._items.get(key) != value:
            self._items[key] = value
            self._on_change(key, value)
