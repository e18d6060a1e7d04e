"""A closed segment, read through its ledger."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass

from crc32c import crc32c
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.page import EntriesLine, EntriesPage, KeysLine, SegmentEnd
from magnetar.ledger.ledger_store import LedgerReader


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The places of a segment's pages."""

    end: SegmentEnd
    entries: list[EntriesLine]
    keys: list[KeysLine]

    @property
    def byte_length(self) -> int:
        """Memory that it uses, about."""
        return 300 + 250 * len(self.entries) + 100 * len(self.keys)

    def page_at(self, position: Position) -> int:
        """Returns the number of the page of entries in which to look for the first entry at or after this."""
        return max(0, bisect_right(self.entries, position, key=_first) - 1)

    def page_of_keyed(self, ordinal: int) -> int:
        """Returns the number of the page of entries that has a keyed message."""
        return bisect_right(self.entries, ordinal, key=_first_keyed) - 1


async def read_page(reader: LedgerReader, page_id: int) -> bytes:
    """Reads one page. Raises errors of `LedgerReader.read`."""
    (run,) = await reader.read(page_id, page_id, pages.PAGE_BYTES_MAX)
    return run.entries[0]


async def read_index(reader: LedgerReader) -> SegmentIndex:
    """Reads the end mark and the index. Raises DataCorruption if the segment is incomplete or damaged, and
    errors of `LedgerReader.read`.
    """
    last = reader.last_confirmed
    if last < 0:
        raise DataCorruption(f"ledger {reader.ref.id} of a compacted view is empty")
    end = pages.decode_end(await read_page(reader, last))
    if end.index_page_id + end.index_pages != last:
        raise DataCorruption(f"ledger {reader.ref.id} of a compacted view ends at {last}, unlike its index")
    entries: list[EntriesLine] = []
    keys: list[KeysLine] = []
    checksum = 0
    for page_id in range(end.index_page_id, last):
        data = await read_page(reader, page_id)
        checksum = crc32c(data, checksum)
        more_entries, more_keys = pages.decode_index(data)
        entries += more_entries
        keys += more_keys
    if checksum != end.index_crc:
        raise DataCorruption(f"the index of ledger {reader.ref.id} of a compacted view is another one's")
    return SegmentIndex(end, entries, keys)


class SegmentKeys:
    """Reads hashes of a segment's keyed messages, page by page."""

    __slots__ = ("_first", "_hashes", "_index", "_reader", "bytes_read")

    def __init__(self, reader: LedgerReader, index: SegmentIndex) -> None:
        self._reader = reader
        self._index = index
        self._first = 0
        self._hashes = b""
        self.bytes_read = 0

    async def pages(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yields (ordinal of the first hash, hashes) of each page of keys. Raises as `read_page`."""
        for line in self._index.keys:
            yield line.first_keyed, await self._load(line)

    async def between(self, first: int, end: int) -> bytes:
        """Returns the hashes of ordinals `first` to below `end`; cheap in ascending order."""
        parts: list[bytes] = []
        while first < end:
            if not self._first <= first < self._first + len(self._hashes) // pages.HASH_BYTES:
                line = self._index.keys[bisect_right(self._index.keys, first, key=_first_keyed) - 1]
                self._hashes = await self._load(line)
                self._first = line.first_keyed
            start = (first - self._first) * pages.HASH_BYTES
            part = self._hashes[start : (end - self._first) * pages.HASH_BYTES]
            if not part:
                raise DataCorruption(f"a segment lacks the hash of its keyed message {first}")
            parts.append(part)
            first += len(part) // pages.HASH_BYTES
        return b"".join(parts)

    async def _load(self, line: KeysLine) -> bytes:
        data = await read_page(self._reader, line.page_id)
        self.bytes_read += len(data)
        return pages.decode_keys(data)


def entry_number(page: EntriesPage, position: Position) -> int:
    """Returns the number of the first entry of a page at or after a position; the count if all are before."""
    return bisect_left(page.positions, position)


def _first(line: EntriesLine) -> Position:
    return line.first


def _first_keyed(line: EntriesLine | KeysLine) -> int:
    return line.first_keyed
