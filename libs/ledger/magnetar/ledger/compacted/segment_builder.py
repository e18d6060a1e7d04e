"""Builds the pages of a segment, in the order of its ledger's entries."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.batch_parts import last_live_index
from magnetar.ledger.compacted.page import EntriesLine, KeysLine, SegmentEnd, StoredEntry

_ENTRY_OVERHEAD: Final = 45
_LINES_PER_INDEX_PAGE: Final = 5_000


class SegmentBuilder:
    """Pages of one segment. `take` returns complete ones; `finish` completes the rest."""

    __slots__ = (
        "_entries",
        "_entries_bytes",
        "_hashed",
        "_hashes",
        "_index",
        "_key_index",
        "_keyed",
        "_last",
        "_made",
        "_pages",
        "_unkeyed",
        "byte_length",
        "entries",
        "first",
    )

    def __init__(self) -> None:
        self._pages: list[bytes] = []
        self._made = 0
        self._entries: list[StoredEntry] = []
        self._entries_bytes = 0
        self._hashes = bytearray()
        self._hashed = 0
        self._index: list[EntriesLine] = []
        self._key_index: list[KeysLine] = []
        self._keyed = 0
        self._unkeyed = 0
        self._last: StoredEntry | None = None
        self.first: Position | None = None
        self.entries = 0
        self.byte_length = 0

    def add(self, entry: StoredEntry) -> None:
        """Adds the next entry; positions ascend."""
        assert self._last is None or entry.position > self._last.position, "entries come in order"
        size = len(entry.data) + _ENTRY_OVERHEAD + 4 * entry.keyed
        if self._entries and self._entries_bytes + size > pages.PAGE_BYTES_MAX:
            self._complete_entries()
        if self.first is None:
            self.first = entry.position
        self._entries.append(entry)
        self._entries_bytes += size
        self._hashes += entry.hashes
        self._last = entry
        self._unkeyed += entry.flags & pages.UNKEYED
        self.byte_length += len(entry.data)
        if len(self._hashes) >= pages.PAGE_BYTES_MAX:
            self._complete_keys()

    def take(self) -> list[bytes]:
        """Returns the pages completed since the last call."""
        taken, self._pages = self._pages, []
        return taken

    def finish(self) -> SegmentEnd:
        """Completes all pages; the last one is the end mark. At least one entry must have been added."""
        assert self._last is not None, "a segment has entries"
        assert self.first is not None, "a segment has entries"
        if self._entries:
            self._complete_entries()
        while self._hashes:
            self._complete_keys()
        index_page_id, index_crc, index_pages = self._made, 0, 0
        entries, keys = self._index, self._key_index
        for at in range(0, max(len(entries), len(keys)), _LINES_PER_INDEX_PAGE):
            index = pages.encode_index(
                entries[at : at + _LINES_PER_INDEX_PAGE], keys[at : at + _LINES_PER_INDEX_PAGE]
            )
            index_crc = crc32c(index, index_crc)
            index_pages += 1
            self._put(index)
        end = SegmentEnd(
            index_page_id,
            index_pages,
            index_crc,
            self.entries,
            self._keyed,
            self._unkeyed,
            self.byte_length,
            self.first,
            self._last.position,
            last_batch_index(self._last.data, self._last.flags, self._last.messages),
        )
        self._put(pages.encode_end(end))
        return end

    def _complete_entries(self) -> None:
        entries = self._entries
        self._index.append(
            EntriesLine(
                self._made,
                entries[0].position,
                max(entry.publish_time_ms for entry in entries),
                self._keyed,
                self.entries,
            )
        )
        self._put(pages.encode_entries(entries))
        self.entries += len(entries)
        self._keyed += sum(entry.keyed for entry in entries)
        self._entries = []
        self._entries_bytes = 0

    def _complete_keys(self) -> None:
        hashes = bytes(self._hashes[: pages.PAGE_BYTES_MAX // pages.HASH_BYTES * pages.HASH_BYTES])
        del self._hashes[: len(hashes)]
        self._key_index.append(KeysLine(self._made, self._hashed))
        self._hashed += len(hashes) // pages.HASH_BYTES
        self._put(pages.encode_keys(hashes))

    def _put(self, page: bytes) -> None:
        self._pages.append(page)
        self._made += 1


def last_batch_index(data: bytes, flags: int, messages: int) -> int:
    """Returns the highest batch index of an entry that is not compacted out; -1 outside of batches, and in
    batches of one message, as GetLastMessageId answers. Raises DataCorruption.
    """
    if not flags & pages.BATCH or messages <= 1:
        return -1
    return messages - 1 if flags & pages.OPAQUE else last_live_index(data)
