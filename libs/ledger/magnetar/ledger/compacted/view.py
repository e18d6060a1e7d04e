"""The compacted view: segments in order, read without what later ones overwrote or deleted.

A view never changes; a run makes another one. Pages and indexes are cached over all topics (`PageCache`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import DataCorruption, EntryUnreadable, NoSuchLedger
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.figures import ViewEnd, ViewFigures
from magnetar.ledger.compacted.live_entries import join_runs, live_numbers, live_run
from magnetar.ledger.compacted.merge_plan import SMALL_BYTES, SegmentSize
from magnetar.ledger.compacted.page import EntriesLine, EntriesPage
from magnetar.ledger.compacted.page_cache import PageCache
from magnetar.ledger.compacted.segment import SegmentIndex, entry_number, read_index, read_page
from magnetar.ledger.compacted.segment_builder import last_batch_index
from magnetar.ledger.ledger_store import LedgerReader, LedgerRef, Run
from prometheus_client import Counter
from pyroaring import BitMap

log = get_logger(__name__)

UNREADABLE_PAGES: Final = Counter(
    "magnetar_compacted_view_unreadable_pages",
    "Reads that found a page of a compacted view damaged on its only copy and skipped it.",
    registry=REGISTRY,
)

_INDEX: Final = -1

_UNTOUCHED: Final = SegmentSize(2 * SMALL_BYTES, 2 * SMALL_BYTES)

OpenLedger = Callable[[LedgerRef], Awaitable[LedgerReader]]


@dataclass(slots=True)
class ViewSegment:
    """One segment of a view."""

    ref: LedgerRef
    first: Position
    last: Position
    entries: int
    keyed: int
    unkeyed: int
    byte_length: int
    stored_bytes: int
    dead: int = 0
    """Number of dead messages."""
    dead_set: bytes = b""
    """The dead messages as a serialized bitmap; empty if none is dead, or if they are in pages."""
    dead_first_page: int = 0
    dead_pages: int = 0
    """Pages of the view's ledger of dead sets that have the bitmap instead."""
    reader: LedgerReader | None = None
    damaged: bool = False
    """Whether a page was found damaged on its only copy, or the ledger lost; not stored."""

    @property
    def size(self) -> SegmentSize:
        """Size for planning merges. Live bytes are 0 only if nothing is alive; a damaged segment counts as
        one that is not worth a merge, which would fail.
        """
        count = self.keyed + self.unkeyed
        live = count - self.dead
        if self.damaged and live:
            return _UNTOUCHED
        return SegmentSize(self.byte_length, self.live_bytes)

    @property
    def live_bytes(self) -> int:
        """Estimated bytes of live entries."""
        count = self.keyed + self.unkeyed
        live = count - self.dead
        return live and max(1, self.byte_length * live // count)

    @property
    def live_entries(self) -> int:
        """Number of live entries: exact without batches."""
        count = self.keyed + self.unkeyed
        return self.entries * (count - self.dead) // count if count else 0


@dataclass(frozen=True, slots=True)
class PendingGroup:
    """Chunks in the view of a message whose last chunk lies after the horizon."""

    group_hash: bytes
    key_hash: bytes
    positions: tuple[Position, ...]


@dataclass(slots=True)
class ViewRead:
    """Result of a read; see `TopicCompaction.read`."""

    runs: list[Run]
    next: Position
    unreadable: list[Position]


@dataclass(frozen=True, slots=True)
class View:
    """A view; `open_ledger` opens segments when they are first read."""

    topic: str
    horizon: Position
    segments: tuple[ViewSegment, ...]
    end: ViewEnd | None
    """The last message; None if the view is empty."""
    hash_key: bytes
    open_ledger: OpenLedger
    cache: PageCache
    dead_sets: LedgerRef | None = None
    pending: tuple[PendingGroup, ...] = ()
    runs: int = 0
    retain_null_key: bool = False
    merge_credit: int = 0

    @property
    def figures(self) -> ViewFigures:
        """Figures for stats."""
        segments = self.segments
        return ViewFigures(
            segments[-1].ref.id if segments else -1,
            len(segments),
            sum(segment.live_entries for segment in segments),
            sum(segment.live_bytes for segment in segments),
            sum(segment.stored_bytes for segment in segments),
            sum(segment.damaged for segment in segments),
        )

    @property
    def refs(self) -> list[LedgerRef]:
        """All ledgers that the view needs."""
        refs = [segment.ref for segment in self.segments]
        return refs if self.dead_sets is None else [*refs, self.dead_sets]

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ViewRead:
        """Reads as `TopicCompaction.read`."""
        runs: list[Run] = []
        unreadable: list[Position] = []
        at = bisect_left(self.segments, start, key=_last)
        for segment in self.segments[at:]:
            if segment.dead == segment.keyed and not segment.unkeyed:
                continue
            index = await self.index(segment)
            dead = await self.dead(segment)
            for number in range(index.page_at(start), len(index.entries)):
                line = index.entries[number]
                page = await self._readable_page(segment, line)
                if page is None:
                    unreadable.append(line.first)
                    continue
                first = entry_number(page, start)
                for each, _, died in live_numbers(page, line.first_keyed, dead, first):
                    if runs and (entries_max <= 0 or bytes_max <= 0):
                        return ViewRead(join_runs(runs), page.positions[each], unreadable)
                    run = live_run(page, each, died)
                    runs.append(run)
                    entries_max -= 1
                    bytes_max -= run.byte_length
                await asyncio.sleep(0)  # a page may have thousands of dead entries, and be cached
        following = Position(self.horizon.ledger_id, self.horizon.entry_id + 1)
        return ViewRead(join_runs(runs), max(start, following), unreadable)

    async def first_at_time(self, publish_time_ms: int) -> Position | None:
        """Searches as `TopicCompaction.first_at_time`."""
        for segment in self.segments:
            index = await self.index(segment)
            dead = await self.dead(segment)
            for line in index.entries:
                if line.max_publish_time_ms < publish_time_ms:
                    continue
                page = await self._readable_page(segment, line)
                if page is None:
                    continue
                for each, _, _ in live_numbers(page, line.first_keyed, dead):
                    if page.publish_times_ms[each] >= publish_time_ms:
                        return page.positions[each]
        return None

    async def find_end(self) -> ViewEnd | None:
        """Finds the last live message by reading pages from the end. Raises as `read`."""
        for segment in reversed(self.segments):
            index = await self.index(segment)
            dead = await self.dead(segment)
            for line in reversed(index.entries):
                page = await self.page(segment, line)
                live = deque(live_numbers(page, line.first_keyed, dead), maxlen=1)
                if live:
                    number, _, died = live[0]
                    run = live_run(page, number, died)
                    batch_index = last_batch_index(run.entries[0], page.flags[number], run.messages)
                    return ViewEnd(page.positions[number], batch_index)
        return None

    async def locate(self, position: Position) -> tuple[int, int] | None:
        """Returns (number of an entry's segment, ordinal of its first keyed message); None if no segment has
        it. Raises as `read`.
        """
        at = bisect_left(self.segments, position, key=_last)
        if at == len(self.segments) or position < self.segments[at].first:
            return None
        segment = self.segments[at]
        index = await self.index(segment)
        line = index.entries[index.page_at(position)]
        page = await self.page(segment, line)
        number = entry_number(page, position)
        if number == len(page.positions) or page.positions[number] != position:
            return None
        return at, line.first_keyed + sum(page.keyed[:number])

    async def index(self, segment: ViewSegment) -> SegmentIndex:
        """Returns a segment's index. Raises NoSuchLedger, DataCorruption, and errors of reading."""
        found = self.cache.get(segment.ref.id, _INDEX)
        if isinstance(found, SegmentIndex):
            return found
        index = await read_index(await self.reader(segment))
        self.cache.put(segment.ref.id, _INDEX, index, index.byte_length)
        return index

    async def dead(self, segment: ViewSegment) -> BitMap:
        """Returns the ordinals of a segment's dead messages; the caller must not change them. Raises as
        `index`.
        """
        if not segment.dead:
            return _NONE_DEAD
        if not segment.dead_pages:
            return decode_dead_set(segment.dead_set, segment.dead)
        assert self.dead_sets is not None, "the ledger of dead sets is named with them"
        found = self.cache.get(self.dead_sets.id, segment.dead_first_page)
        if isinstance(found, BitMap):
            return found
        reader = await self.open_ledger(self.dead_sets)
        parts = [
            pages.decode_dead(await read_page(reader, segment.dead_first_page + number), number)
            for number in range(segment.dead_pages)
        ]
        data = b"".join(parts)
        dead = decode_dead_set(data, segment.dead)
        self.cache.put(self.dead_sets.id, segment.dead_first_page, dead, 200 + 2 * len(data))
        return dead

    async def page(self, segment: ViewSegment, line: EntriesLine) -> EntriesPage:
        """Returns a page of entries. Raises as `index`."""
        found = self.cache.get(segment.ref.id, line.page_id)
        if isinstance(found, EntriesPage):
            return found
        data = await read_page(await self.reader(segment), line.page_id)
        page = pages.decode_entries(data)
        self.cache.put(segment.ref.id, line.page_id, page, len(data) + 200 * len(page.positions))
        return page

    async def reader(self, segment: ViewSegment) -> LedgerReader:
        """Returns a reader of a segment's ledger. Raises NoSuchLedger, MetadataError."""
        if segment.reader is None:
            try:
                segment.reader = await self.open_ledger(segment.ref)
            except NoSuchLedger:
                segment.damaged = True
                raise
        return segment.reader

    async def _readable_page(self, segment: ViewSegment, line: EntriesLine) -> EntriesPage | None:
        """Returns a page, or None if its only copy is damaged: it stays a visible hole."""
        try:
            return await self.page(segment, line)
        except (EntryUnreadable, DataCorruption) as error:
            if (await self.reader(segment)).copies > 1:
                raise
            segment.damaged = True
            UNREADABLE_PAGES.inc()
            log.error(
                "page of a compacted view unreadable, skipped",
                topic=self.topic,
                ledger=segment.ref.id,
                page=line.page_id,
                first=str(line.first),
                error=str(error),
            )
            return None


_NONE_DEAD: Final = BitMap()


def decode_dead_set(data: bytes, expected: int) -> BitMap:
    """Decodes a serialized dead set of this many messages. Raises DataCorruption."""
    try:
        dead = BitMap.deserialize(data)
    except ValueError as error:
        raise DataCorruption(f"invalid dead set of a compacted segment: {error}") from error
    if len(dead) != expected:
        raise DataCorruption(f"a dead set of {len(dead)} messages, {expected} are expected")
    return dead


def _last(segment: ViewSegment) -> Position:
    return segment.last
