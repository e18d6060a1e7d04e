"""The plan of which entries each task reads and from where: arithmetic over ledgers, without I/O.

    topic    ledger 7 (offloaded)      ledger 9 (closed)     ledger 12 (open)
             parts of its manifest     bookies or broker     its broker
    ranges   |-----|-----|-----|-----  |------|------        |---
    tasks    1           2             3                     4

A ledger is cut into ranges of about equally many bytes; small ranges, also of several topics, share a task.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from magnetar.common.offload.offload_pb2 import COMPLETE, Ledger
from magnetar.ledger.cold.layout import Manifest, Part
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress, hot_source
from magnetar.spark.message_ids import BEGINNING, MessageAt

LOOK_BACK_ENTRIES: Final = 2_000
"""Entries before its first one in which a task looks for chunks of a message that ends in its range."""

LOOK_BACK_LEDGERS: Final = 8

CLOCK_SLACK_MS: Final = 60_000
"""Clocks of brokers differ: a ledger is left out by its time only where it is off by more."""

RANGES_MAX: Final = 10_000
"""Ranges of one ledger or part."""


@dataclass(frozen=True, slots=True)
class ColdLedger:
    """Location of a ledger's objects."""

    location: str
    path: str
    """Path of the attempt, below the location."""
    manifest_sha256: bytes


@dataclass(frozen=True, slots=True)
class ColdPart:
    """One Parquet object."""

    location: str
    path: str
    """Path below the location."""
    part: Part
    """Description of the part in the manifest."""


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Entries of one ledger, both ends inclusive, from one place: `part`, or `source`."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    part: ColdPart | None = None
    source: LedgerSource | None = None
    byte_length: int = 0
    """About, uncompressed."""


@dataclass(frozen=True, slots=True)
class EarlierEntries:
    """Entries before others, in case chunks of a message are there. Exactly one of the places is set."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    cold: ColdLedger | None = None
    part: ColdPart | None = None
    source: LedgerSource | None = None


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Consecutive ranges of one topic, and which messages of them count."""

    topic: str
    partition: int
    start: MessageAt
    end: MessageAt
    ranges: tuple[EntryRange, ...]
    before: tuple[EarlierEntries, ...] = ()
    """Newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLedgers:
    """A topic as a broker described it."""

    topic: str
    partition: int
    creation_id: int
    service: ServiceAddress
    """Address for closed ledgers: any broker."""
    owner: ServiceAddress
    """Address for the open ledger: the owner."""
    ledgers: tuple[Ledger, ...] = field(repr=False)
    """Ascending, those with entries."""
    schema_type: str = ""
    schema: bytes = b""

    @property
    def first(self) -> MessageAt:
        """The place before its first message."""
        return MessageAt(self.ledgers[0].ledger_id, 0) if self.ledgers else BEGINNING

    @property
    def end(self) -> MessageAt:
        """The place behind its last entry."""
        if not self.ledgers:
            return BEGINNING
        last = self.ledgers[-1]
        return MessageAt(last.ledger_id, last.last_entry_id + 1)

    def source(self, ledger: Ledger) -> LedgerSource:
        """Return the address of its entries outside objects."""
        return hot_source(self.owner if ledger.closed_ms == 0 else self.service, self.topic, ledger)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBounds:
    """Bounds of the brokers' publish times; ms since 1970 UTC, the end exclusive, None: no bound."""

    start_ms: int | None = None
    end_ms: int | None = None

    def may_hold(self, ledger: Ledger) -> bool:
        """Return whether a ledger can have messages within the bounds."""
        newest = ledger.max_publish_time_ms
        if self.start_ms is not None and 0 < newest < self.start_ms:
            return False
        return self.end_ms is None or not 0 < self.end_ms <= ledger.opened_ms - CLOCK_SLACK_MS


NO_TIMES: Final = TimeBounds()

ManifestOf = Callable[[ColdLedger], Manifest | None]
"""None: it cannot be read, and bookies are asked instead where they still have the ledger."""


def cold_ledger(ledger: Ledger) -> ColdLedger | None:
    """Return the location of a ledger's objects; None while they are not complete."""
    state = ledger.offload
    if state.state != COMPLETE:
        return None
    return ColdLedger(state.location, state.path, state.manifest_sha256)


def spans(ledgers: Iterable[Ledger], start: MessageAt, end: MessageAt) -> Iterator[tuple[Ledger, int, int]]:
    """(ledger, first entry, last entry) of what lies between two places, in order."""
    for ledger in ledgers:
        ledger_id = ledger.ledger_id
        first, last = 0, ledger.last_entry_id
        if ledger_id < start.ledger_id or ledger_id > end.ledger_id:
            continue
        if ledger_id == start.ledger_id:
            first = start.entry_id
        if ledger_id == end.ledger_id:
            last = min(last, end.entry_id if end.batch_index > 0 else end.entry_id - 1)
        if first <= last:
            yield ledger, first, last


def cold_ranges(
    cold: ColdLedger, manifest: Manifest, first: int, last: int, range_bytes: int
) -> Iterator[EntryRange]:
    """The entries `first` to `last` of an offloaded ledger."""
    for part in manifest.parts:
        if part.last_entry_id < first or part.first_entry_id > last:
            continue
        low, high = max(first, part.first_entry_id), min(last, part.last_entry_id)
        where = ColdPart(cold.location, f"{cold.path}/{part.name}", part)
        share = (part.payload_bytes + part.raw_bytes) * (high - low + 1) // part.entries
        for low_entry, high_entry, size in _cut(low, high, share, range_bytes):
            yield EntryRange(manifest.ledger_id, low_entry, high_entry, part=where, byte_length=size)


def hot_ranges(
    source: LedgerSource, first: int, last: int, entry_bytes: float, range_bytes: int
) -> Iterator[EntryRange]:
    """The entries `first` to `last` of a ledger that bookies or a broker have."""
    share = round(entry_bytes * (last - first + 1))
    for low_entry, high_entry, size in _cut(first, last, share, range_bytes):
        yield EntryRange(source.ledger_id, low_entry, high_entry, source=source, byte_length=size)


def _cut(first: int, last: int, size: int, most: int) -> Iterator[tuple[int, int, int]]:
    entries = last - first + 1
    count = max(1, min(-(-size // most), entries, RANGES_MAX))
    begin = first
    for number in range(count):
        end = first + entries * (number + 1) // count
        yield begin, end - 1, size // count
        begin = end


def topic_ranges(
    topic: TopicLedgers,
    start: MessageAt,
    end: MessageAt,
    manifest_of: ManifestOf,
    *,
    range_bytes: int,
    times: TimeBounds = NO_TIMES,
    only: Container[int] | None = None,
) -> Iterator[EntryRange]:
    """Yield the ranges of a topic to read, in order; `only` restricts them to ledgers by id."""
    for ledger, first, last in spans(topic.ledgers, start, end):
        if not times.may_hold(ledger) or (only is not None and ledger.ledger_id not in only):
            continue
        cold = cold_ledger(ledger)
        manifest = None if cold is None else manifest_of(cold)
        if cold is not None and manifest is not None:
            yield from cold_ranges(cold, manifest, first, last, range_bytes)
        else:
            entry_bytes = ledger.byte_length / max(ledger.entries, 1)
            yield from hot_ranges(topic.source(ledger), first, last, entry_bytes, range_bytes)


def earlier_entries(topic: TopicLedgers, first: EntryRange) -> tuple[EarlierEntries, ...]:
    """Return the entries before a range in which chunks are looked for, newest first."""
    found = []
    left = LOOK_BACK_ENTRIES
    at = first.first_entry_id
    for ledger in reversed(topic.ledgers):
        if ledger.ledger_id > first.ledger_id:
            continue
        if ledger.ledger_id < first.ledger_id:
            at = ledger.last_entry_id + 1
        if at > 0:
            low = max(0, at - left)
            cold = cold_ledger(ledger)
            source = None if cold is not None else topic.source(ledger)
            found.append(EarlierEntries(ledger.ledger_id, low, at - 1, cold, source=source))
            left -= at - low
        if left <= 0 or len(found) >= LOOK_BACK_LEDGERS:
            break
    return tuple(found)


def look_back(work: TopicRange, ledger_id: int, entry_id: int) -> Iterator[EarlierEntries]:
    """Yield the entries before one in a task's range in which chunks are looked for, newest first."""
    left = LOOK_BACK_ENTRIES
    inside = (
        EarlierEntries(
            each.ledger_id, each.first_entry_id, each.last_entry_id, part=each.part, source=each.source
        )
        for each in reversed(work.ranges)
    )
    for earlier in (*inside, *work.before):
        last = (
            min(earlier.last_entry_id, entry_id - 1)
            if earlier.ledger_id == ledger_id
            else earlier.last_entry_id
        )
        first = max(earlier.first_entry_id, last - left + 1)
        if earlier.ledger_id > ledger_id or first > last:
            continue
        yield replace(earlier, first_entry_id=first, last_entry_id=last)
        left -= last - first + 1
        if left <= 0:
            return


def share_out(
    topics: Iterable[tuple[TopicLedgers, MessageAt, MessageAt, Iterable[EntryRange]]],
    task_bytes: int,
    *,
    joins: bool,
) -> list[tuple[TopicRange, ...]]:
    """Ranges of topics, in order, as the work of tasks of about `task_bytes` each.

    `joins`: tasks put chunks together, and are told what comes before their ranges.
    """
    tasks: list[tuple[TopicRange, ...]] = []
    work: list[TopicRange] = []
    size = 0
    for topic, start, end, ranges in topics:
        pending: list[EntryRange] = []
        for each in ranges:
            if size and size + each.byte_length > task_bytes:
                if pending:
                    work.append(_topic_range(topic, start, end, pending, joins))
                    pending = []
                tasks.append(tuple(work))
                work, size = [], 0
            pending.append(each)
            size += max(each.byte_length, 1)
        if pending:
            work.append(_topic_range(topic, start, end, pending, joins))
    if work:
        tasks.append(tuple(work))
    return tasks


def _topic_range(
    topic: TopicLedgers, start: MessageAt, end: MessageAt, ranges: Sequence[EntryRange], joins: bool
) -> TopicRange:
    before = earlier_entries(topic, ranges[0]) if joins else ()
    return TopicRange(topic.topic, topic.partition, start, end, tuple(ranges), before)
