"""Reads entries from a segment: every returned byte passed a checksum.

The event loop never waits for the device: cached pages are read at once (RWF_NOWAIT), others in the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from magnetar.common.errors import EntryUnreadable
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.segment_log.codec_v1 import (
    KIND_HOLE,
    RECORD_HEADER_SIZE,
    UNSALTED,
    RecordHeader,
    body_intact,
    checksum_body,
    decode_record_header,
    encode_record_header,
    entry_checksum_matches,
    record_header_length,
    salt_record_header,
)
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.segment import Segment
from magnetar.ledger.segment_log.unreadable_blocks import is_unreadable
from prometheus_client import Counter

READ_BYTES_MIN: Final = 4096
READ_BYTES_MAX: Final = 1 << 20
"""Minimum and maximum bytes of one read from the file, unless a single record is larger."""

READ_STRIDE_MAX: Final = 64 * 1024
"""Distance in bytes above which a ledger's records are read one by one: the bytes between belong to others,
and reading ahead across a thousand interleaved ledgers would fetch a thousand times the result.
"""

UNREADABLE_READS = Counter(
    "magnetar_log_unreadable_reads",
    "Reads that met an entry whose bytes are damaged.",
    registry=REGISTRY,
)


@dataclass(slots=True)
class _Ahead:
    """The part of the file that was read last."""

    start: int = 0
    data: bytes = b""

    def slice(self, offset: int, length: int) -> bytes | None:
        begin = offset - self.start
        if begin < 0 or begin + length > len(self.data):
            return None
        return self.data[begin : begin + length]


class Piece(Protocol):
    """Consecutive entries of one record, in the form that the caller chooses."""

    @property
    def first_entry_id(self) -> int: ...
    @property
    def last_entry_id(self) -> int: ...
    @property
    def byte_length(self) -> int: ...


P = TypeVar("P", bound=Piece)

Build = Callable[[RecordHeader, bytes, bytes, "list[int]", int, int], P]
"""Builds a piece from (header, its bytes, body, entry bounds, begin, stop): entries `begin` to before `stop`
of a record.
"""


@dataclass(frozen=True, slots=True, eq=False)
class RecordSlice:
    """Consecutive entries as a record of their own with an unsalted header CRC, as sent by a bookie."""

    header: bytes
    body: bytes
    first_entry_id: int
    last_entry_id: int

    @property
    def byte_length(self) -> int:
        return len(self.body)


def build_run(header: RecordHeader, raw: bytes, body: bytes, bounds: list[int], begin: int, stop: int) -> Run:
    """Builds a run from entries."""
    counts = header.message_counts
    before = begin if counts is None else sum(counts[:begin])
    return Run(
        [body[bounds[i] : bounds[i + 1]] for i in range(begin, stop)],
        header.publish_time_ms,
        header.first_index + before,
        None if counts is None else list(counts[begin:stop]),
        header.run_flags,
        header.ledger_id,
        first_entry_id=header.first_entry_id + begin,
        byte_length=bounds[stop] - bounds[begin],
        txn=header.txn,
    )


def build_slice(
    header: RecordHeader, raw: bytes, body: bytes, bounds: list[int], begin: int, stop: int
) -> RecordSlice:
    """Builds a record from entries; a whole record is passed on unchanged."""
    first = header.first_entry_id + begin
    if stop - begin == header.entry_count:
        encoded = bytearray(raw)
    else:
        body = body[bounds[begin] : bounds[stop]]
        counts = header.message_counts
        encoded = encode_record_header(
            header.kind,
            header.ledger_id,
            header.ledger_key,
            first,
            header.lac,
            run_flags=header.run_flags,
            publish_time_ms=header.publish_time_ms,
            first_index=header.first_index + (begin if counts is None else sum(counts[:begin])),
            lengths=[bounds[i + 1] - bounds[i] for i in range(begin, stop)],
            message_counts=None if counts is None else counts[begin:stop],
            body_length=len(body),
            body_crc=checksum_body([body]),
            txn=header.txn,
        )
    salt_record_header(encoded, UNSALTED)
    return RecordSlice(bytes(encoded), body, first, first + stop - begin - 1)


async def read_segment(
    pool: BlockingPool,
    segment: Segment,
    index: LedgerIndex,
    ref: LedgerRef,
    first: int,
    last: int,
    max_bytes: int,
    build: Build[P],
) -> list[P]:
    """Reads the consecutive entries from `first` up to `last` that this segment holds, in order.

    Returns fewer for `max_bytes`, but at least one; empty if the segment does not hold `first`. Raises
    EntryUnreadable if `first` is damaged; a later damaged entry ends the answer before it.
    """
    pieces: list[P] = []
    ahead = _Ahead()
    budget = max_bytes
    while first <= last and (budget > 0 or not pieces):
        damaged = index.incomplete
        piece = None
        record_end = first
        for place in index.candidates(first):
            record = await _read_record(pool, segment, ahead, index, place, budget)
            if record is None or (record[0].ledger_id, record[0].ledger_key) != (ref.id, ref.key):
                damaged = True
                continue
            header, raw, body = record
            if not header.first_entry_id <= first <= header.last_entry_id:
                continue  # it ends before the entry
            begin, stop = _wanted(header, first, last, budget, at_least_one=not pieces)
            if begin == stop:
                return pieces  # over budget
            bounds = header.entry_bounds()
            stop = begin if header.kind == KIND_HOLE else _sound_stop(header, body, bounds, begin, stop)
            if begin == stop:
                damaged = True
                continue
            piece = build(header, raw, body, bounds, begin, stop)
            record_end = header.last_entry_id
            break
        if piece is None:
            if damaged and not pieces:
                UNREADABLE_READS.inc()
                raise EntryUnreadable(f"entry {ref.id}:{first} is damaged in {segment.path}")
            break
        pieces.append(piece)
        budget -= piece.byte_length
        if piece.last_entry_id < min(last, record_end):
            break
        first = piece.last_entry_id + 1
    return pieces


async def _read_record(
    pool: BlockingPool,
    segment: Segment,
    ahead: _Ahead,
    index: LedgerIndex,
    place: int,
    budget: int,
) -> tuple[RecordHeader, bytes, bytes] | None:
    """Returns a record's header, its bytes and its body; None if the header is damaged or the record is
    incomplete.
    """
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
    if raw is None:
        return None
    header = decode_record_header(raw, segment.header.salt)
    if header is None or offset + length + header.body_length > segment.durable_end:
        return None
    body = ahead.slice(offset + length, header.body_length)
    if body is None:
        wanted = max(header.record_length, bytes_ahead(index, place, budget))
        await _fill(pool, segment, ahead, offset, wanted)
        body = ahead.slice(offset + length, header.body_length)
    return None if body is None else (header, raw, body)


def bytes_ahead(index: LedgerIndex, place: int, budget: int) -> int:
    """Returns how many bytes to read from the record at `place` on: as far as the ledger's records are close
    together.
    """
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
        if not is_unreadable(error):
            raise
        # A bad sector affects only its own records, not everything that was read ahead with it.
        data = await pool.run(lambda: segment.read(length, offset))
    ahead.start = offset
    ahead.data = data


def _wanted(
    header: RecordHeader, first: int, last: int, budget: int, *, at_least_one: bool
) -> tuple[int, int]:
    """Returns the range of a record's entries that are requested and fit."""
    begin = first - header.first_entry_id
    end = min(last - header.first_entry_id + 1, header.entry_count)
    if header.lengths is None:
        stop = end if not header.entry_length else min(end, begin + max(0, budget) // header.entry_length)
    else:
        stop = begin
        while stop < end and budget >= header.lengths[stop]:
            budget -= header.lengths[stop]
            stop += 1
    return begin, stop + 1 if stop == begin and at_least_one else stop


def _sound_stop(header: RecordHeader, body: bytes, bounds: list[int], begin: int, stop: int) -> int:
    """Returns the end of the intact part of the requested entries; `begin` if the first of them is damaged.

    The whole body's CRC is verified if most of it is requested; a few entries are verified by their own CRCs,
    which also identify the intact entries of a damaged body.
    """
    whole: bool | None = None
    if 2 * (bounds[stop] - bounds[begin]) >= header.body_length:
        whole = body_intact(body, header.body_crc)
        if whole:
            return stop
    for place in range(begin, stop):
        sound = entry_checksum_matches(body[bounds[place] : bounds[place + 1]])
        if sound is None:
            if whole is None:
                whole = body_intact(body, header.body_crc)
            sound = whole
        if not sound:
            return place
    return stop
