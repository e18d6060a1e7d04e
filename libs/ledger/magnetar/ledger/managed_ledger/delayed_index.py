"""The index of delayed entries and their delivery times, shared by all subscriptions of a topic.

Pure state, no I/O and no clock. An entry's delivery time never changes, so the index may drop any entry at
any time: the subscription that next reads the entry adds it again. Recovery needs nothing else.

Memory holds a roaring bitmap per ledger of all indexed entries (to decide whether an entry must be read), a
heap of the entries due next, and a line per *chunk*: about a thousand entries in time order, stored in the
cursor ledger. When the heap is full, entries not due soon become chunks; a chunk is loaded shortly before its
first entry is due, or later, when earlier entries have made room: however many entries are due at one time,
the number in memory is limited. An entry no longer in the bitmap is no longer indexed, wherever else it still
appears.
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
"""Heap size (48 bytes per entry) at which entries not due soon become chunks."""

SOON_MS: Final = 3_000
"""Entries due within this time stay in the heap, where writing them would not pay off."""

SOON_ENTRIES_MAX: Final = 65_536
"""Maximum number of entries that stay for that reason."""

LEAD_MS: Final = 2_000
"""Time in ms before the first entry's due time at which a chunk is loaded."""


class DelayedChunk:
    """Indexed entries that form one record: first as keys, then as `data`, then only in the cursor ledger.

    `entry_id` is the record's entry id there, -1 while unknown.
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
        """Delivery time of the first entry."""
        return time_of(self.first_key)

    def encode(self) -> None:
        """Encodes the keys as a record; takes about a millisecond."""
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
        """Returns the ids of the ledger's delayed entries, not to be modified; None without any."""
        return self._bitmaps.get(ledger_id)

    @property
    def ledger_ids(self) -> list[int]:
        """Ledgers with delayed entries."""
        return list(self._bitmaps)

    def add(self, deliver_at_ms: int, ledger_id: int, entry_id: int) -> bool:
        """Adds an entry; returns False if it is indexed already."""
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
        """Removes ledgers below this id."""
        for ledger_id in [each for each in self._bitmaps if each < first_ledger_id]:
            self.count -= len(self._bitmaps.pop(ledger_id))
        self._drop_gone(first_ledger_id)

    def _drop_gone(self, first_ledger_id: int) -> None:
        if any(chunk.last_ledger_id < first_ledger_id for chunk in self._chunks):
            self._chunks = [chunk for chunk in self._chunks if chunk.last_ledger_id >= first_ledger_id]
        if not self._bitmaps:
            self._heap, self._chunks = [], []

    def forget(self) -> dict[int, BitMap]:
        """Empties the index, because a chunk is lost; returns the removed entries by ledger."""
        forgotten, self._bitmaps = self._bitmaps, {}
        self._heap, self._chunks = [], []
        self.count = 0
        return forgotten

    # What is due

    def next_event_ms(self) -> int | None:
        """Returns the time of the next event: an entry is due, or a chunk must be loaded."""
        at = time_of(self._heap[0]) if self._heap else None
        if self._chunks and self._has_room_for(self._chunks[0]):
            load_at = self._chunks[0].first_ms - LEAD_MS
            return load_at if at is None or load_at < at else at
        return at

    @property
    def next_due_ms(self) -> int | None:
        """Returns a time before which nothing is due; exact when near. None if the index is empty."""
        if not self.count:
            return None
        firsts = [chunk.first_ms for chunk in self._chunks[:1]]
        if self._heap:
            firsts.append(time_of(self._heap[0]))
        return min(firsts, default=None)

    def take_due(self, now_ms: int, entries_max: int) -> list[tuple[int, int]]:
        """Removes and returns due entries (ledger id, entry id), by time and then by position.

        Stops before entries that follow one of an unloaded chunk. The first entry of that chunk may also be
        in the heap, from an earlier owner's record: it is returned, since otherwise neither could proceed.
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
        """Turns entries not due soon into chunks when the heap is full, or unconditionally (`everything`).

        The caller encodes and writes them; until then their entries stay here.
        """
        if len(self._heap) < self._seal_at and not everything:
            return []
        keys = sorted(self._heap)
        soon = min(bisect_left(keys, pack(now_ms + SOON_MS, 0, 0)), SOON_ENTRIES_MAX)
        sealed = [_chunk(keys[at : at + CHUNK_ENTRIES]) for at in range(soon, len(keys), CHUNK_ENTRIES)]
        del keys[soon:]
        self._heap = keys  # what is sorted is a heap
        # Sorting is expensive: the next one waits until half of the heap is new.
        self._seal_at = max(HEAP_ENTRIES_MAX, 2 * len(keys))
        self._chunks = sorted(self._chunks + sealed)
        return sealed

    def chunk_to_load(self, now_ms: int) -> DelayedChunk | None:
        """Returns the chunk needed next, once it is time and there is room for it."""
        chunks = self._chunks
        if chunks and chunks[0].first_ms <= now_ms + LEAD_MS and self._has_room_for(chunks[0]):
            return chunks[0]
        return None

    def _has_room_for(self, chunk: DelayedChunk) -> bool:
        """Returns whether a chunk may be loaded; not while many earlier entries still wait."""
        heap = self._heap
        return len(heap) < HEAP_ENTRIES_MAX or heap[0] > chunk.first_key

    def load(self, chunk: DelayedChunk, keys: Iterable[int]) -> None:
        """Adds the entries of a loaded chunk, whose record is then unused. Ignored if the chunk was dropped
        meanwhile.
        """
        if chunk not in self._chunks:
            return
        self._chunks.remove(chunk)
        for key in keys:
            ledger_id, entry_id = position_of(key)
            bitmap = self._bitmaps.get(ledger_id)
            if bitmap is not None and entry_id in bitmap:
                heappush(self._heap, key)

    def chunks(self) -> Sequence[DelayedChunk]:
        """Returns all unloaded chunks, by the time of their first entry."""
        return self._chunks

    def restore(
        self, entry_id: int, byte_length: int, content: ChunkContent, now_ms: int, existing: Container[int]
    ) -> None:
        """Adds a chunk found in the cursor ledger at this entry id while the topic is loaded.

        Only entries not yet due, in existing ledgers, are kept; others are found by reading.
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
        """Returns the index's approximate memory in bytes."""
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
