"""Reading entries out of a segment: every byte that leaves here passed a checksum.

The event loop never waits for the device: what the page cache has is read at once (RWF_NOWAIT), the rest in
the pool.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import EntryUnreadable
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import (
    KIND_HOLE,
    RECORD_HEADER_SIZE,
    RecordHeader,
    body_intact,
    decode_record_header,
    entry_checksum_matches,
    record_header_length,
)
from magnetar.ledger.segment_log.index import NO_RUN, LedgerIndex
from magnetar.ledger.segment_log.segment import Segment
from prometheus_client import Counter

READ_BYTES_MIN: Final = 4096
READ_BYTES_MAX: Final = 1 << 20
"""One read from the file asks for between these many bytes, unless a single record is larger."""

READ_STRIDE_MAX: Final = 64 * 1024
"""Records of a ledger that begin further apart than this are read one by one: what lies between belongs to
others, and a read ahead over a thousand interleaved ledgers would fetch a thousand times what it returns."""

UNREADABLE_READS = Counter(
    "magnetar_log_unreadable_reads",
    "Reads that met an entry whose bytes are damaged.",
    registry=REGISTRY,
)


@dataclass(slots=True)
class _Ahead:
    """The piece of the file that was read last."""

    start: int = 0
    data: bytes = b""

    def slice(self, offset: int, length: int) -> bytes | None:
        begin = offset - self.start
        if begin < 0 or begin + length > len(self.data):
            return None
        return self.data[begin : begin + length]


async def read_runs(
    pool: BlockingPool,
    segment: Segment,
    index: LedgerIndex,
    ref: LedgerRef,
    first: int,
    last: int,
    max_bytes: int,
) -> list[Run]:
    """Entries from `first` on, up to `last`, that this segment holds without a gap, in order.

    Fewer for `max_bytes`, but at least one; empty when the segment does not hold `first`. Raises
    EntryUnreadable when `first` is damaged; a damaged entry further on ends the answer before it.
    """
    runs: list[Run] = []
    place = index.find(first)
    ahead = _Ahead()
    budget = max_bytes
    while place != NO_RUN and place < len(index) and first <= last and (budget > 0 or not runs):
        if index.first_entry_id(place) > first:
            break
        record = await _read_record(pool, segment, ahead, index, place, budget)
        if record is not None and (record[0].ledger_id, record[0].ledger_key) != (ref.id, ref.key):
            record = None
        if record is not None and record[0].last_entry_id < first:
            break  # a gap: the segment does not hold this entry
        if record is not None and record[0].kind == KIND_HOLE:
            record = None
        run = None if record is None else _take(*record, first, last, budget, at_least_one=not runs)
        if run is None:
            if runs:
                break
            UNREADABLE_READS.inc()
            raise EntryUnreadable(f"entry {ref.id}:{first} is damaged in {segment.path}")
        if not run.entries:
            break
        run.ledger_id = ref.id
        runs.append(run)
        budget -= run.byte_length
        assert record is not None, "a run came out of it"
        if run.last_entry_id < min(last, record[0].last_entry_id):
            break
        first = run.last_entry_id + 1
        place += 1
    return runs


async def _read_record(
    pool: BlockingPool, segment: Segment, ahead: _Ahead, index: LedgerIndex, place: int, budget: int
) -> tuple[RecordHeader, bytes] | None:
    """A record's header and body; None when the header is damaged or the record is not whole."""
    offset = index.offset(place)
    fixed = ahead.slice(offset, RECORD_HEADER_SIZE)
    if fixed is None:
        await _fill(pool, segment, ahead, offset, bytes_ahead(index, place, budget))
        fixed = ahead.slice(offset, RECORD_HEADER_SIZE)
    length = -1 if fixed is None else record_header_length(fixed)
    if length < 0 or offset + length > segment.durable_end:
        return None
    raw = ahead.slice(offset, length)
    if raw is None:
        await _fill(pool, segment, ahead, offset, max(length, bytes_ahead(index, place, budget)))
        raw = ahead.slice(offset, length)
    header = None if raw is None else decode_record_header(raw, segment.header.salt)
    if header is None or offset + length + header.body_length > segment.durable_end:
        return None
    body = ahead.slice(offset + length, header.body_length)
    if body is None:
        wanted = max(header.record_length, bytes_ahead(index, place, budget))
        await _fill(pool, segment, ahead, offset, wanted)
        body = ahead.slice(offset + length, header.body_length)
    return None if body is None else (header, body)


def bytes_ahead(index: LedgerIndex, place: int, budget: int) -> int:
    """How much to read from the record at `place` on: as far as the ledger's records lie close together."""
    limit = min(READ_BYTES_MAX, max(READ_BYTES_MIN, budget + RECORD_HEADER_SIZE))
    begin = here = index.offset(place)
    for following in range(place + 1, len(index)):
        next_offset = index.offset(following)
        if not here < next_offset <= here + READ_STRIDE_MAX:
            break  # copies of earlier entries may lie anywhere
        here = next_offset
        if here - begin >= limit:
            return limit
    return min(limit, here - begin + READ_BYTES_MIN)


async def _fill(pool: BlockingPool, segment: Segment, ahead: _Ahead, offset: int, length: int) -> None:
    length = min(length, segment.durable_end - offset)
    file = segment.file
    try:
        data = file.pread_nowait(length, offset)
        if data is None:
            data = await pool.run(lambda: file.pread(length, offset))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        data = b""  # the medium lost it: damaged like any other
    ahead.start = offset
    ahead.data = data


def _take(
    header: RecordHeader, body: bytes, first: int, last: int, budget: int, *, at_least_one: bool
) -> Run | None:
    """The wanted entries of a record as a run; None when the first of them is damaged.

    The whole body's CRC is checked when most of it is wanted; a few entries are checked by the CRCs that they
    carry, which also tell the sound entries of a damaged body from the others.
    """
    begin = first - header.first_entry_id
    end = min(last - header.first_entry_id + 1, header.entry_count)
    bounds = header.entry_bounds()
    stop = begin
    while stop < end and bounds[stop + 1] - bounds[begin] <= budget:
        stop += 1
    if stop == begin and at_least_one:
        stop += 1
    entries = [body[bounds[i] : bounds[i + 1]] for i in range(begin, stop)]
    whole: bool | None = None
    if 2 * (bounds[stop] - bounds[begin]) >= header.body_length:
        whole = body_intact(body, header.body_crc)
    if not whole:
        for place, entry in enumerate(entries):
            sound = entry_checksum_matches(entry)
            if sound is None:
                if whole is None:
                    whole = body_intact(body, header.body_crc)
                sound = whole
            if not sound:
                if place == 0:
                    return None
                del entries[place:]
                break
    counts = header.message_counts
    before = begin if counts is None else sum(counts[:begin])
    return Run(
        entries,
        header.publish_time_ms,
        header.first_index + before,
        None if counts is None else list(counts[begin : begin + len(entries)]),
        header.run_flags,
        first_entry_id=first,
    )
