"""Compaction: rewrites the live records of some segments into a new one, ordered by ledger and entry.

This is the blocking half, in slices; `space` decides what is rewritten and how fast. Nothing is lost: marks
and the highest last add confirmed are kept even without entries of a ledger; a damaged record is copied
unchanged, and one with a damaged header becomes a hole that lists its entries.

The output is written under a name that is never read, synced and sealed, and only then renamed. A crash
before that leaves nothing, a crash after it leaves duplicates, which are equal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from magnetar.common.errors import DataCorruption, StorageError
from magnetar.common.runtime.disk import Disk
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    KIND_ENTRIES,
    KIND_FENCE,
    KIND_HOLE,
    KIND_LAC,
    KIND_LIMBO,
    RECORD_HEADER_SIZE,
    EncodedRecord,
    RecordHeader,
    body_intact,
    decode_record_header,
    encode_group,
    encode_record_header,
    entry_checksum_matches,
    record_header_length,
)
from magnetar.ledger.segment_log.file_codec_v1 import (
    MARK_FENCED,
    SegmentHeader,
    doubt_of,
    encode_mark,
    encode_segment_header,
    pack_doubt,
)
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.recovery import rebuild_indexes
from magnetar.ledger.segment_log.segment import Segment, compaction_path

SLICE_BYTES: Final = 256 << 10
"""Approximate bytes read and written in one step."""

_READ_BYTES: Final = 8192
_FLAGS, _NUMBER = slice(6, 8), slice(48, 56)
"""Bytes requested by the first read of a record."""


class IncompleteIndex(StorageError):
    """A segment's footer and a group's directory are both damaged, so some of its records are unlisted."""

    def __init__(self, segment: Segment, ref: LedgerRef) -> None:
        super().__init__(f"records of ledger {ref.id} in {segment.path} are lost without a name")
        self.segment = segment


class DuplicateMismatch(StorageError):
    """Two intact copies of an entry differ: one of them is wrong, and this store cannot decide which."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """A record in one segment. `header` is None if it is damaged."""

    header: RecordHeader | None
    raw: bytes
    body: bytes
    sound: bool

    @property
    def identity(self) -> bytes:
        """Returns all fields except the header's CRC, which differs by segment, and the last add confirmed,
        which differs after a recovery's re-write; the body counts by its CRC.
        """
        return self.raw[:32] + self.raw[40 : RECORD_HEADER_SIZE - 4] + self.raw[RECORD_HEADER_SIZE:]


class Rewrite:
    """One output of compaction. Call `step` until it returns 0, then `finish`; or `abandon`. All block.

    `inputs` accept no more writes. `elsewhere` are other such segments that may hold copies of some ledgers'
    records: entries intact in one of them are not written again.
    """

    def __init__(
        self,
        disk: Disk,
        header: SegmentHeader,
        inputs: Sequence[Segment],
        refs: Sequence[LedgerRef],
        elsewhere: Mapping[LedgerRef, Sequence[Segment]],
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self.unreadable_entries = 0
        self.duplicates = 0
        self._disk = disk
        self._header = header
        self._inputs = inputs
        self._elsewhere = elsewhere
        self._slice_bytes = slice_bytes
        self._rebuilt: dict[int, dict[LedgerRef, LedgerIndex]] = {}
        self._records = self._live_records(sorted(refs, key=lambda ref: (ref.id, ref.key)))
        self._segment: Segment | None = None

    def step(self) -> int:
        """Writes the next group; returns about how many bytes were read and written, 0 at the end.

        After OSError, DuplicateMismatch or IncompleteIndex, call `abandon`.
        """
        records: list[EncodedRecord] = []
        size = 0
        for record in self._records:
            records.append(record)
            size += record.record_length
            if size >= self._slice_bytes:
                break
        if not records:
            return 0
        if self._segment is None:
            path = compaction_path(self._header.sequence)
            self._segment = Segment(self._disk, self._header, self._disk.open(path, create=True), path)
            self._segment.file.pwritev([encode_segment_header(self._header)], 0)
        self._write(self._segment, records)
        return 2 * size

    def finish(self) -> Segment | None:
        """Makes the output durable and gives it its name; None if nothing was left to write."""
        segment = self._segment
        if segment is not None:
            segment.seal(segment.end)
            segment.indexes.clear()
            segment.publish()
        return segment

    def abandon(self) -> None:
        """Removes the output, which is not in use yet."""
        if self._segment is not None:
            self._segment.close()
            self._disk.unlink(self._segment.path)

    def _write(self, segment: Segment, records: list[EncodedRecord]) -> None:
        header = segment.header
        sequence = segment.last_group_sequence + 1
        # True by the time it is read: the file counts only once all of it is durable.
        durable = segment.durable(segment.last_group_sequence)
        buffers, offsets = encode_group(records, header.uuid, header.salt, sequence, durable)
        start = segment.end
        segment.file.pwritev(buffers, start)
        segment.file.fdatasync()  # now and then, so that the last one does not hold up the log's own syncs
        segment.end = segment.durable_end = start + sum(map(len, buffers))
        segment.last_group_sequence = sequence
        for record, offset in zip(records, offsets, strict=True):
            index = segment.index_of(LedgerRef(record.ledger_id, record.ledger_key))
            kind, lac = record.header[4], int.from_bytes(record.header[32:40], "little", signed=True)
            if kind in (KIND_ENTRIES, KIND_HOLE):
                first, count = record.first_entry_id, record.entry_count
                index.add_run(first, count, start + offset, record.body_length, lac)
                segment.entries += count
            index.lac = max(index.lac, lac)
            index.fenced |= kind == KIND_FENCE
            if kind == KIND_LIMBO:
                number, flags = (int.from_bytes(record.header[at], "little") for at in (_NUMBER, _FLAGS))
                index.doubt = max(index.doubt, pack_doubt(number, flags))

    # --- what is written ---

    def _live_records(self, refs: Sequence[LedgerRef]) -> Iterator[EncodedRecord]:
        for ref in refs:
            lac = -1
            for record in self._entries(ref):
                lac = max(lac, int.from_bytes(record.header[32:40], "little", signed=True))
                yield record
            yield from self._marks(ref, lac)

    def _marks(self, ref: LedgerRef, written_lac: int) -> Iterator[EncodedRecord]:
        lines = [line for segment in self._inputs if (line := segment.line(ref)) is not None]
        lac = max((line.lac for line in lines), default=-1)
        marks = 0
        for line in lines:
            marks |= line.marks
        kinds = [(KIND_FENCE, 0)] if marks & MARK_FENCED else []
        if doubt := max((doubt_of(line.marks) for line in lines), default=0):
            kinds.append((KIND_LIMBO, doubt))  # a cleared one too: it answers a mark in another segment
        if not kinds and lac > written_lac:
            kinds.append((KIND_LAC, 0))
        for kind, number in kinds:
            header = encode_mark(kind, ref.id, ref.key, lac, number)
            yield EncodedRecord(ref.id, ref.key, -1, 0, header, (), 0)

    def _entries(self, ref: LedgerRef) -> Iterator[EncodedRecord]:
        inputs = [(segment, self._index(segment, ref)) for segment in self._inputs if segment.line(ref)]
        others = [(segment, self._index(segment, ref)) for segment in self._elsewhere.get(ref, ())]
        runs = heapq.merge(*(_runs(order, index) for order, (_, index) in enumerate(inputs)))
        for first, same in groupby(runs, key=itemgetter(0)):
            places = list(same)
            self.duplicates += len(places) - 1
            by_count: dict[int, list[_Copy]] = {}
            for _, order, end, offset in places:
                copy = self._read(inputs[order][0], ref, offset)
                count = end - first if copy.header is None else copy.header.entry_count
                by_count.setdefault(count, []).append(copy)
            # A repair may hold fewer entries than the damaged record that it begins with: both are needed
            # then.
            for count in sorted(by_count, reverse=True):
                copies = by_count[count]
                if self._is_elsewhere(ref, first, count, copies, others):
                    break
                yield self._encoded(ref, first, first + count, copies)
                if any(copy.sound for copy in copies):
                    break

    def _is_elsewhere(
        self,
        ref: LedgerRef,
        first: int,
        count: int,
        copies: list[_Copy],
        others: Sequence[tuple[Segment, LedgerIndex]],
    ) -> bool:
        """Returns whether a segment that is not rewritten holds these entries intact."""
        for segment, index in others:
            for place in index.candidates(first):
                if index.first_entry_id(place) != first:
                    break
                copy = self._read(segment, ref, index.offset(place))
                if copy.sound and copy.header is not None and copy.header.entry_count >= count:
                    if copy.header.entry_count == count:
                        self._choose(ref, first, [*copies, copy])  # they must be equal
                    self.duplicates += 1
                    return True
        return False

    def _choose(self, ref: LedgerRef, first: int, copies: list[_Copy]) -> _Copy:
        sound = [copy for copy in copies if copy.sound]
        if len({copy.identity for copy in sound}) > 1:
            raise DuplicateMismatch(f"ledger {ref.id} has two different records at entry {first}")
        with_header = [copy for copy in copies if copy.header is not None]
        return (sound or with_header or copies)[0]

    def _encoded(self, ref: LedgerRef, first: int, end: int, copies: list[_Copy]) -> EncodedRecord:
        copy = self._choose(ref, first, copies)
        header = copy.header
        if header is None or header.kind == KIND_HOLE:
            count = end - first if header is None else header.entry_count
            self.unreadable_entries += count
            hole = encode_record_header(KIND_HOLE, ref.id, ref.key, first, -1, lengths=[0] * count)
            return EncodedRecord(ref.id, ref.key, first, count, hole, (), 0)
        if not copy.sound:
            self.unreadable_entries += _unreadable(header, copy.body)
        body_length = len(copy.body)
        return EncodedRecord(
            ref.id, ref.key, first, header.entry_count, bytearray(copy.raw), [copy.body], body_length
        )

    def _index(self, segment: Segment, ref: LedgerRef) -> LedgerIndex:
        if not segment.sealed:
            return segment.indexes[ref]
        rebuilt = self._rebuilt.get(segment.sequence)
        if rebuilt is None:
            try:
                return segment.load_index(ref)
            except DataCorruption:
                rebuilt = self._rebuilt[segment.sequence] = rebuild_indexes(segment)
        index = rebuilt.get(ref) or LedgerIndex()
        if segment in self._inputs and len(index) < segment.summaries[ref].runs:
            # The output would look complete, and lost entries like entries that never existed.
            raise IncompleteIndex(segment, ref)
        return index

    def _read(self, segment: Segment, ref: LedgerRef, offset: int) -> _Copy:
        lost = _Copy(None, b"", b"", False)
        limit = segment.durable_end - offset
        data = segment.read(min(_READ_BYTES, limit), offset)
        length = record_header_length(data[:RECORD_HEADER_SIZE])
        if not 0 <= length <= limit:
            return lost
        if length > len(data):
            data = segment.read(length, offset)
        raw = data[:length]
        header = decode_record_header(raw, segment.header.salt)
        if header is None or length + header.body_length > limit:
            return lost
        if (header.ledger_id, header.ledger_key) != (ref.id, ref.key):
            return lost
        end = length + header.body_length
        if end > len(data):
            data += segment.read(end - len(data), offset + len(data))
        body = data[length:end]
        sound = header.kind == KIND_ENTRIES and body_intact(body, header.body_crc)
        return _Copy(header, raw, body, sound)


def _runs(order: int, index: LedgerIndex) -> Iterator[tuple[int, int, int, int]]:
    """Yields (first entry id, order, next run's first entry id, offset) of each run."""
    for place in range(len(index)):
        yield index.first_entry_id(place), order, index.end_after(place), index.offset(place)


def _unreadable(header: RecordHeader, body: bytes) -> int:
    """Returns how many entries of a damaged body are lost: those not verified by their own CRC."""
    bounds = header.entry_bounds()
    entries = (body[bounds[i] : bounds[i + 1]] for i in range(header.entry_count))
    return sum(not entry_checksum_matches(entry) for entry in entries)


def output_bytes_max(inputs: Sequence[Segment], live_bytes: int) -> int:
    """Returns an upper bound of a rewrite's output in bytes: live records, groups, footer."""
    runs = sum(line.runs for segment in inputs for line in segment.lines.values())
    lines = sum(len(segment.lines) for segment in inputs)
    return live_bytes + live_bytes // 8 + 8 * runs + 256 * lines + 16 * BLOCK
