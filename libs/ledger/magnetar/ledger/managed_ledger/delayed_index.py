"""Which entries of a topic are delayed, and until when: facts about entries, shared by its subscriptions.

Pure state, no I/O and no clock. What the index says of an entry never changes, so it may forget anything at
any time: who then reads the entry finds its time again and adds it again. That is all there is to recovery.

In memory is a roaring bitmap a ledger of all entries in the index (it answers "must this be read?"), a heap
of those that are due next, and a line for every *chunk*: about a thousand entries in the order of their time,
on disk in the cursor ledger. When the heap is full, what is not due soon becomes chunks; a chunk comes back
into the heap shortly before the first of its entries is due, or later, when those that come before it have
made room: however many are due at one time, only so many are in memory. An entry that left the bitmap is no
longer in the index, wherever else it is still found.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final

from magnetar.ledger.managed_ledger.bitmaps import bitmap_bytes
from magnetar.ledger.managed_ledger.delayed_chunks import (
    CHUNK_ENTRIES,
    ChunkContent,
    encode_chunk,
    pack,
    position_of,
    time_of,
)
from pyroaring import BitMap

HEAP_ENTRIES_MAX: Final = 16_384
"""Entries in the heap (48 bytes each) at which those that are not due soon become chunks."""

SOON_MS: Final = 3_000
"""Entries due within this time stay in the heap: writing them would not pay."""

SOON_ENTRIES_MAX: Final = 65_536
"""But no more than so many entries stay."""

LEAD_MS: Final = 2_000
"""A chunk is loaded so long before the first of its entries is due."""


class DelayedChunk:
    """Entries of the index that are one record: as keys, then as `data`, then only in the cursor ledger.

    `entry_id` is its place there, -1 while it is not known to be there.
    """

    __slots__ = ("byte_length", "data", "entry_id", "first_key", "keys", "last_ledger_id")

    def __init__(self, first_key: int, last_ledger_id: int) -> None:
        self.first_key = first_key
        self.last_ledger_id = last_ledger_id
        self.keys: list[int] | None = None
        self.data: bytes | None = None
        self.byte_length = 0
        self.entry_id = -1

    def __lt__(self, other: DelayedChunk) -> bool:
        return self.first_key < other.first_key

    @property
    def first_ms(self) -> int:
        """When the first of its entries is due."""
        return time_of(self.first_key)

    def encode(self) -> None:
        """From keys to a record: a millisecond's work."""
        assert self.keys is not None, "encoded once"
        self.data, self.keys = encode_chunk(self.keys), None
        self.byte_length = len(self.data)


class DelayedIndex:
    """The delayed entries of one topic. Times are ms since 1970 UTC."""

    __slots__ = ("_bitmaps", "_chunks", "_heap", "_seal_at", "count")

    def __init__(self) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        self._heap: list[int] = []
        self._chunks: list[DelayedChunk] = []
        self._seal_at = HEAP_ENTRIES_MAX
        self.count = 0
        """Entries in the index."""

    def __bool__(self) -> bool:
        return self.count > 0

    # What is in it

    def entries_of(self, ledger_id: int) -> BitMap | None:
        """The ids of the ledger's delayed entries, not to be changed; None when there are none."""
        return self._bitmaps.get(ledger_id)

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers with delayed entries."""
        return list(self._bitmaps)

    def add(self, deliver_at_ms: int, ledger_id: int, entry_id: int) -> bool:
        """Take an entry; False when it is in the index."""
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None:
            bitmap = self._bitmaps[ledger_id] = BitMap()
        elif entry_id in bitmap:
            return False
        bitmap.add(entry_id)
        heappush(self._heap, pack(deliver_at_ms, ledger_id, entry_id))
        self.count += 1
        return True

    def trimmed(self, first_ledger_id: int) -> None:
        """Ledgers below this id are gone."""
        for ledger_id in [each for each in self._bitmaps if each < first_ledger_id]:
            self.count -= len(self._bitmaps.pop(ledger_id))
        self._drop_gone(first_ledger_id)

    def _drop_gone(self, first_ledger_id: int) -> None:
        if any(chunk.last_ledger_id < first_ledger_id for chunk in self._chunks):
            self._chunks = [chunk for chunk in self._chunks if chunk.last_ledger_id >= first_ledger_id]
        if not self._bitmaps:
            self._heap, self._chunks = [], []

    def forget(self) -> dict[int, BitMap]:
        """Empty the index, because a chunk is lost; returns the entries that were in it, by ledger."""
        forgotten, self._bitmaps = self._bitmaps, {}
        self._heap, self._chunks = [], []
        self.count = 0
        return forgotten

    # What is due

    def next_event_ms(self) -> int | None:
        """When there is something to do next: an entry is due, or a chunk is to be loaded."""
        at = time_of(self._heap[0]) if self._heap else None
        if self._chunks and self._has_room_for(self._chunks[0]):
            load_at = self._chunks[0].first_ms - LEAD_MS
            return load_at if at is None or load_at < at else at
        return at

    @property
    def next_due_ms(self) -> int | None:
        """A time up to which nothing is due; exact when it is near. None when the index is empty."""
        if not self.count:
            return None
        firsts = [chunk.first_ms for chunk in self._chunks[:1]]
        if self._heap:
            firsts.append(time_of(self._heap[0]))
        return min(firsts, default=None)

    def take_due(self, now_ms: int, entries_max: int) -> list[tuple[int, int]]:
        """Remove and return entries that are due, (ledger id, entry id), by time and then by position.

        None that would come after an entry of a chunk that is still to be loaded. The first of that chunk may
        be in the heap too, from a record that an earlier owner left: it goes, or neither would ever move.
        """
        end = pack(now_ms + 1, 0, 0)
        if self._chunks:
            end = min(end, self._chunks[0].first_key + 1)
        heap, bitmaps = self._heap, self._bitmaps
        due: list[tuple[int, int]] = []
        while heap and heap[0] < end and len(due) < entries_max:
            position = ledger_id, entry_id = position_of(heappop(heap))
            bitmap = bitmaps.get(ledger_id)
            if bitmap is not None and entry_id in bitmap:
                bitmap.remove(entry_id)
                self.count -= 1
                if not bitmap:
                    del bitmaps[ledger_id]
                due.append(position)
        return due

    # Chunks

    def seal(self, now_ms: int, *, everything: bool = False) -> list[DelayedChunk]:
        """Make chunks of what is not due soon, when the heap is full or is to be left (`everything`).

        They are to be encoded and written; until they are, their entries are kept here.
        """
        if len(self._heap) < self._seal_at and not everything:
            return []
        keys = sorted(self._heap)
        soon = min(bisect_left(keys, pack(now_ms + SOON_MS, 0, 0)), SOON_ENTRIES_MAX)
        sealed = [_chunk(keys[at : at + CHUNK_ENTRIES]) for at in range(soon, len(keys), CHUNK_ENTRIES)]
        del keys[soon:]
        self._heap = keys  # what is sorted is a heap
        # Sorting costs: not again before half of it is new.
        self._seal_at = max(HEAP_ENTRIES_MAX, 2 * len(keys))
        self._chunks = sorted(self._chunks + sealed)
        return sealed

    def chunk_to_load(self, now_ms: int) -> DelayedChunk | None:
        """The chunk that is needed next, once it is time and there is room for it."""
        chunks = self._chunks
        if chunks and chunks[0].first_ms <= now_ms + LEAD_MS and self._has_room_for(chunks[0]):
            return chunks[0]
        return None

    def _has_room_for(self, chunk: DelayedChunk) -> bool:
        """A chunk does not come back before what comes before it went out, where that is much."""
        heap = self._heap
        return len(heap) < HEAP_ENTRIES_MAX or heap[0] > chunk.first_key

    def load(self, chunk: DelayedChunk, keys: Iterable[int]) -> None:
        """The entries of a chunk; it is of no more use on disk. Nothing when it was dropped meanwhile."""
        if chunk not in self._chunks:
            return
        self._chunks.remove(chunk)
        for key in keys:
            ledger_id, entry_id = position_of(key)
            bitmap = self._bitmaps.get(ledger_id)
            if bitmap is not None and entry_id in bitmap:
                heappush(self._heap, key)

    def chunks(self) -> Sequence[DelayedChunk]:
        """All that are not loaded, by the time of their first entry."""
        return self._chunks

    def restore(
        self, entry_id: int, byte_length: int, content: ChunkContent, now_ms: int, existing: Container[int]
    ) -> None:
        """A chunk as it is found on disk when the topic is loaded, at this place of the cursor ledger.

        Only what is not due yet counts, in ledgers that exist; all else is found by reading.
        """
        start = bisect_right(content.times_ms, now_ms)
        if start:
            content = ChunkContent(*(part[start:] for part in content))
        named = set(content.ledger_ids)
        ledgers = {ledger_id for ledger_id in named if ledger_id in existing}
        if not ledgers:
            return
        for ledger_id in ledgers:
            entry_ids = content.entry_ids
            if len(named) > 1:
                pairs = zip(content.ledger_ids, entry_ids, strict=True)
                entry_ids = [entry for ledger, entry in pairs if ledger == ledger_id]
            bitmap = self._bitmaps.setdefault(ledger_id, BitMap())
            before = len(bitmap)
            bitmap.update(entry_ids)
            self.count += len(bitmap) - before
        first_key = pack(content.times_ms[0], content.ledger_ids[0], content.entry_ids[0])
        chunk = DelayedChunk(first_key, max(ledgers))
        chunk.entry_id, chunk.byte_length = entry_id, byte_length
        insort(self._chunks, chunk)

    @property
    def byte_size(self) -> int:
        """About the memory that the index takes."""
        bitmaps = sum(map(bitmap_bytes, self._bitmaps.values()))
        chunks = sum(_CHUNK_BYTES + len(chunk.data or b"") for chunk in self._chunks)
        keys = len(self._heap) + sum(len(chunk.keys or ()) for chunk in self._chunks)
        return _KEY_BYTES * keys + bitmaps + chunks


_KEY_BYTES: Final = 56
_CHUNK_BYTES: Final = 120


def _chunk(keys: list[int]) -> DelayedChunk:
    chunk = DelayedChunk(keys[0], max(position_of(key)[0] for key in keys))
    chunk.keys = keys
    return chunk
