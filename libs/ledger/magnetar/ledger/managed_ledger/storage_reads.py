"""Reads of a managed ledger from storage: catch-up reads, and searches for a position by time.

Entries are read in batches, ledger by ledger. An entry damaged on its only copy is skipped and reported, so
that it stays a visible hole and does not block a subscription. An entry with several copies is never skipped:
the read waits until one is repaired or available (storage contract, section 4). The same holds if the ledger
has, or may have, objects: see `span_reads`.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.errors import EntryUnreadable, LedgerError, NoSuchEntry, NoSuchLedger
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.span_reads import SpanReads
from prometheus_client import Counter

log = get_logger(__name__)

UNREADABLE = Counter(
    "magnetar_managed_ledger_unreadable_entries",
    "Reads that found an entry damaged on its only copy and skipped it.",
    registry=REGISTRY,
)

_UNREADABLE_MAX = 1_000
"""Maximum damaged entries skipped by one read, so that it ends."""


def cut(run: Run, limit: Position) -> Run | None:
    """Returns the part of a run up to `limit`."""
    if (run.ledger_id, run.last_entry_id) <= limit:
        return run
    if (run.ledger_id, run.first_entry_id) > limit:
        return None
    return run.slice(run.first_entry_id, limit.entry_id)


async def read(
    reads: SpanReads,
    spans: LedgerSpans,
    start: Position,
    limit: Position,
    entries_max: int,
    bytes_max: int,
) -> ReadResult:
    """Reads as `ManagedLedger.read`; `limit` is the last readable position."""
    runs: list[Run] = []
    unreadable: list[Position] = []
    at = start
    while entries_max > 0 and bytes_max > 0 and len(unreadable) < _UNREADABLE_MAX:
        following = spans.next_position(Position(at.ledger_id, at.entry_id - 1))
        if following is None or following > limit:
            break
        at = following
        span = spans.by_id[at.ledger_id]
        last = limit.entry_id if at.ledger_id == limit.ledger_id else span.entries - 1
        last = min(last, at.entry_id + entries_max - 1)
        try:
            found = await reads.read(span, at.entry_id, last, bytes_max)
        except (NoSuchLedger, EntryUnreadable, NoSuchEntry) as error:
            if spans.by_id.get(at.ledger_id) is not span:
                continue  # trimmed while it was read: go on with what exists
            only_copy = reads.is_only_copy(span)
            if isinstance(error, NoSuchLedger) or (not only_copy and not runs):
                raise
            if not only_copy:
                break  # the next read begins there, and says so
            # A confirmed entry that is missing counts as damaged too.
            UNREADABLE.inc()
            log.error("entry unreadable, skipped", topic=reads.topic, position=str(at), error=str(error))
            unreadable.append(at)
            at = Position(at.ledger_id, at.entry_id + 1)
            entries_max -= 1
            continue
        runs += found
        entries_max -= sum(len(run.entries) for run in found)
        bytes_max -= sum(run.byte_length for run in found)
        at = Position(at.ledger_id, found[-1].last_entry_id + 1)
    return ReadResult(runs, at, unreadable)


@dataclass(frozen=True, slots=True)
class TailReads:
    """Reads of a topic's own entries, for its compaction; created for one answer."""

    reads: SpanReads
    spans: LedgerSpans

    async def read(self, start: Position, limit: Position, entries_max: int, bytes_max: int) -> ReadResult:
        """Reads as `ManagedLedger.read`, past the entry cache; `limit` is the last readable position."""
        return await read(self.reads, self.spans, start, limit, entries_max, bytes_max)

    async def read_keys(self, start: Position, limit: Position) -> list[KeyRun]:
        """Reads some entries from `start` up to `limit` for their keys; empty unless only objects have them,
        and they can be read there. `read` says why not.
        """
        at = self.spans.next_position(Position(start.ledger_id, start.entry_id - 1))
        if at is None or at > limit or not self.reads.only_in_objects(self.spans.by_id[at.ledger_id]):
            return []
        span = self.spans.by_id[at.ledger_id]
        last = limit.entry_id if at.ledger_id == limit.ledger_id else span.entries - 1
        try:
            return await self.reads.read_keys(span, at.entry_id, last)
        except LedgerError:
            return []


async def find_before_publish_time(
    reads: SpanReads, spans: LedgerSpans, publish_time_ms: int, limit: Position
) -> Position:
    """Searches as `ManagedLedger.find_before_publish_time`."""
    for span in list(spans.spans):
        if 0 < span.max_publish_time_ms < publish_time_ms:
            continue
        entry_id = await _first_not_before(reads, span, publish_time_ms)
        if entry_id < span.entries:
            before = Position(span.ref.id, entry_id - 1)
            return min(spans.floor(before) or before, limit)
    return limit


async def _first_not_before(reads: SpanReads, span: LedgerSpan, publish_time_ms: int) -> int:
    """Returns the first entry of a ledger not known to be older; `span.entries` if all are older.

    An unreadable entry is older if a later one is. Otherwise its age is unknown: it counts as older only if
    the only copy is damaged, so that it will never be delivered; other copies may be repaired.
    """
    if reads.from_objects(span):
        # Objects index publish times of many entries at once.
        try:
            return await reads.first_not_before(span, publish_time_ms)
        except LedgerError:
            if reads.only_in_objects(span):
                raise
    entries = span.entries
    if not span.max_publish_time_ms and entries:
        last = await _publish_time(reads, span, entries - 1)
        span.max_publish_time_ms = last or 0
        if last is not None and last < publish_time_ms:
            return entries
    low, high = 0, entries
    while low < high:
        middle = (low + high) // 2
        for entry_id in (*range(middle, low - 1, -1), *range(middle + 1, high)):
            found = await _publish_time(reads, span, entry_id)
            if found is not None:
                break
        else:
            return high if reads.is_only_copy(span) else low
        if found < publish_time_ms:
            low = entry_id + 1
        elif entry_id <= middle:
            high = entry_id
        else:
            return entry_id if reads.is_only_copy(span) else low
    return low


async def _publish_time(reads: SpanReads, span: LedgerSpan, entry_id: int) -> int | None:
    """Returns the entry's publish time; None if it is unreadable."""
    try:
        return (await reads.read(span, entry_id, entry_id, 1))[0].publish_time_ms
    except (EntryUnreadable, NoSuchEntry):
        return None
