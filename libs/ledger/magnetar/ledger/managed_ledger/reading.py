"""Reads of a managed ledger that go to storage: catching up, and finding a position by time.

In lots, ledger by ledger. What is damaged on the only copy is skipped and reported, so that it stays a
visible hole and does not stop a subscription. Where an entry has several copies it is never skipped: reading
waits until one of them is repaired or comes back (storage contract, section 4).
"""

from __future__ import annotations

from magnetar.common.errors import EntryUnreadable, NoSuchEntry, NoSuchLedger
from magnetar.common.naming.position import Position
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.ledger_store import LedgerReader, LedgerStore, Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from prometheus_client import Counter

log = get_logger(__name__)

UNREADABLE = Counter(
    "magnetar_managed_ledger_unreadable_entries",
    "Reads that found an entry damaged on its only copy and skipped it.",
    registry=REGISTRY,
)

_UNREADABLE_MAX = 1_000
"""Damaged entries skipped by one read, so that it ends."""


def cut(run: Run, limit: Position) -> Run | None:
    """What of a run is up to `limit`."""
    if (run.ledger_id, run.last_entry_id) <= limit:
        return run
    if (run.ledger_id, run.first_entry_id) > limit:
        return None
    return run.slice(run.first_entry_id, limit.entry_id)


async def read(
    ledgers: LedgerStore,
    spans: LedgerSpans,
    topic: str,
    start: Position,
    limit: Position,
    entries_max: int,
    bytes_max: int,
) -> ReadResult:
    """See `ManagedLedger.read`; `limit` is the last position that may be read."""
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
        only_copy = False
        try:
            reader = await _reader(ledgers, span)
            only_copy = reader.copies == 1
            found = await reader.read(at.entry_id, last, bytes_max)
        except (NoSuchLedger, EntryUnreadable, NoSuchEntry) as error:
            if spans.by_id.get(at.ledger_id) is not span:
                continue  # trimmed while it was read: go on with what exists
            if isinstance(error, NoSuchLedger) or (not only_copy and not runs):
                raise
            if not only_copy:
                break  # the next read begins there, and says so
            # An entry that was confirmed and is not there is damage as well.
            UNREADABLE.inc()
            log.error("entry unreadable, skipped", topic=topic, position=str(at), error=str(error))
            unreadable.append(at)
            at = Position(at.ledger_id, at.entry_id + 1)
            entries_max -= 1
            continue
        runs += found
        entries_max -= sum(len(run.entries) for run in found)
        bytes_max -= sum(run.byte_length for run in found)
        at = Position(at.ledger_id, found[-1].last_entry_id + 1)
    return ReadResult(runs, at, unreadable)


async def find_before_publish_time(
    ledgers: LedgerStore, spans: LedgerSpans, publish_time_ms: int, limit: Position
) -> Position:
    """See `ManagedLedger.find_before_publish_time`."""
    for span in list(spans.spans):
        if not span.max_publish_time_ms:
            run = await _run_at_or_before(ledgers, span, span.entries - 1)
            span.max_publish_time_ms = 0 if run is None else run.publish_time_ms
        if span.max_publish_time_ms < publish_time_ms:
            continue
        low, high = 0, span.entries
        while low < high:
            middle = (low + high) // 2
            run = await _run_at_or_before(ledgers, span, middle)
            if run is not None and run.publish_time_ms >= publish_time_ms:
                high = middle
            else:
                low = middle + 1
        return min(spans.floor(Position(span.ref.id, low - 1)) or Position(span.ref.id, low - 1), limit)
    return limit


async def _run_at_or_before(ledgers: LedgerStore, span: LedgerSpan, entry_id: int) -> Run | None:
    """The entry, or the last readable one before it; None when there is none."""
    reader = await _reader(ledgers, span)
    for candidate in range(entry_id, -1, -1):
        try:
            return (await reader.read(candidate, candidate, 1))[0]
        except (EntryUnreadable, NoSuchEntry):
            continue
    return None


async def _reader(ledgers: LedgerStore, span: LedgerSpan) -> LedgerReader:
    if span.reader is None:
        span.reader = await ledgers.open(span.ref)
    return span.reader
