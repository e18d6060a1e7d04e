"""Decoded pages and indexes of segments that were read last, bounded over all topics of a process."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from magnetar.ledger.compacted.page import EntriesPage
from magnetar.ledger.compacted.segment import SegmentIndex
from pyroaring import BitMap

CACHE_BYTES_MAX: Final = 16 << 20

Cached = EntriesPage | SegmentIndex | BitMap


class PageCache:
    """Pages and dead sets by (ledger id, page id), indexes by page id -1; the least recently used goes."""

    __slots__ = ("_bytes", "_bytes_max", "_items")

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._items: OrderedDict[tuple[int, int], tuple[Cached, int]] = OrderedDict()

    @property
    def byte_length(self) -> int:
        """Bytes in use, about."""
        return self._bytes

    def get(self, ledger_id: int, page_id: int) -> Cached | None:
        """Returns a cached object; None on a miss."""
        found = self._items.get((ledger_id, page_id))
        if found is None:
            return None
        self._items.move_to_end((ledger_id, page_id))
        return found[0]

    def put(self, ledger_id: int, page_id: int, item: Cached, byte_length: int) -> None:
        """Caches an object that is not cached yet."""
        self.drop(ledger_id, page_id)
        self._items[ledger_id, page_id] = item, byte_length
        self._bytes += byte_length
        while self._bytes > self._bytes_max and len(self._items) > 1:
            _, (_, dropped) = self._items.popitem(last=False)
            self._bytes -= dropped

    def clear(self) -> None:
        """Drops everything."""
        self._items.clear()
        self._bytes = 0

    def drop(self, ledger_id: int, page_id: int) -> None:
        """Drops an object, if cached."""
        found = self._items.pop((ledger_id, page_id), None)
        if found is not None:
            self._bytes -= found[1]
