"""Ranges of a ledger's entries held by a log, from the indexes and, where these are insufficient, from record
headers.

An index has the beginnings of runs, not their ends. A run directly followed by the next entry's run has one
entry; for any other the record's header is read, never its body.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from copy import copy
from functools import partial
from typing import TypeAlias

from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    KIND_ENTRIES,
    RECORD_HEADER_SIZE,
    decode_record_header,
    record_header_length,
)
from magnetar.ledger.segment_log.index import NO_RUN, LedgerIndex
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.segment import Segment

Range: TypeAlias = tuple[int, int]
"""First and last entry."""


async def held_ranges(
    log: SegmentLog, pool: BlockingPool, ref: LedgerRef, first: int, last: int
) -> list[Range]:
    """Returns the durable ranges within `first` to `last`, in order; adjacent ranges are joined. Raises
    OSError.
    """
    found: list[Range] = []
    looked_at: set[int] = set()
    # Segments change while this waits, so the list is read again after each.
    while segments := [
        each for each in log.segments_of(ref) if each.sequence not in looked_at and not each.retired
    ]:
        segment = segments[-1]
        looked_at.add(segment.sequence)
        line = segment.line(ref)
        if line is None or line.last_entry_id < first or line.base > last:
            continue
        with segment.reading():
            index = await log.indexes.get(segment, ref)
            if index is not None:
                found += await pool.run(partial(_in_segment, segment, _as_now(index), ref, first, last))
    return joined(found)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Joins overlapping or adjacent ranges, given in order."""
    whole: list[Range] = []
    for first, last in sorted(ranges):
        if whole and first <= whole[-1][1] + 1:
            whole[-1] = whole[-1][0], max(whole[-1][1], last)
        else:
            whole.append((first, last))
    return whole


def _as_now(index: LedgerIndex) -> LedgerIndex:
    """Returns a copy that appends do not change while a thread reads it."""
    now = copy(index)
    now.firsts, now.offsets = index.firsts[:], index.offsets[:]
    return now


def _in_segment(segment: Segment, index: LedgerIndex, ref: LedgerRef, first: int, last: int) -> list[Range]:
    """Returns the ranges in one segment. Blocks."""
    found: list[Range] = []
    oldest = min(index.candidates(first), default=NO_RUN)
    for place in range(max(oldest, 0), len(index)):
        start = index.first_entry_id(place)
        if start > last:
            break
        end = start if index.end_after(place) <= start + 1 else _last_entry(segment, ref, index.offset(place))
        if end >= first:
            found.append((max(first, start), min(last, end)))
    return found


def _last_entry(segment: Segment, ref: LedgerRef, offset: int) -> int:
    """Returns the last entry of the record at an offset; -1 if its header is damaged, or it is a hole."""
    try:
        raw = segment.file.pread(RECORD_HEADER_SIZE, offset)
        length = record_header_length(raw)
        if length > len(raw):
            raw = segment.file.pread(length, offset)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return -1
    header = None if length < 0 else decode_record_header(raw, segment.header.salt)
    if header is None or header.kind != KIND_ENTRIES:
        return -1
    return header.last_entry_id if (header.ledger_id, header.ledger_key) == (ref.id, ref.key) else -1
