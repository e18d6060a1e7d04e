"""One segment file: made, zero-filled ahead of its writer, sealed, opened again, recycled or removed.

Everything here blocks and runs in a pool, except what only looks at attributes. A segment counts as made when
its header is synced and its name is in a synced directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.common.runtime.disk import Disk, DiskFile
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import BLOCK, Durable
from magnetar.ledger.segment_log.file_codec_v1 import (
    FLAG_RECYCLED,
    FOOTER_HEADER_SIZE,
    SUMMARY_SIZE,
    TRAILER_SIZE,
    FooterDirectory,
    LedgerSummary,
    SegmentHeader,
    Trailer,
    decode_footer_arrays,
    decode_footer_directory,
    decode_footer_header,
    decode_trailer,
    encode_footer,
    encode_segment_header,
    encode_trailer,
    padded_footer_length,
)
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.unreadable_blocks import read_around

SEGMENTS_DIRECTORY: Final = "segments"
_SUFFIX: Final = ".seg"
_NEW_SUFFIX: Final = ".compact"
_SPARE_SUFFIX: Final = ".spare"
_FILL_SLICE: Final = 1 << 20
_ZEROS: Final = bytes(_FILL_SLICE)


def segment_path(sequence: int) -> str:
    """The path of the segment with this sequence."""
    return f"{SEGMENTS_DIRECTORY}/{sequence:016x}{_SUFFIX}"


def compaction_path(sequence: int) -> str:
    """Where compaction writes a segment before it counts: a file of this name is never read."""
    return f"{SEGMENTS_DIRECTORY}/{sequence:016x}{_NEW_SUFFIX}"


def segment_sequences(disk: Disk) -> list[int]:
    """Sequences of the segment files there are, oldest first; other names are left alone."""
    names = [name for name in disk.listdir(SEGMENTS_DIRECTORY) if name.endswith(_SUFFIX)]
    return sorted(int(name[: -len(_SUFFIX)], 16) for name in names)


def leftover_paths(disk: Disk) -> tuple[list[str], list[str]]:
    """(files of compactions that were cut short, spare files for recycling)."""
    names = disk.listdir(SEGMENTS_DIRECTORY)
    paths = [f"{SEGMENTS_DIRECTORY}/{name}" for name in names]
    unfinished = [path for path in paths if path.endswith(_NEW_SUFFIX)]
    return unfinished, [path for path in paths if path.endswith(_SPARE_SUFFIX)]


class Segment:
    """An open file of the log.

    `end` is where the next group goes; everything before `durable_end` is durable and may be read. `indexes`
    holds every ledger while the segment is open. Once sealed, `summaries` has a line per ledger and indexes
    are read from the footer when asked for (see `load_index`).
    """

    def __init__(self, disk: Disk, header: SegmentHeader, file: DiskFile, path: str | None = None) -> None:
        self.disk = disk
        self.header = header
        self.file = file
        self.path = path or segment_path(header.sequence)
        self.end = BLOCK
        self.durable_end = BLOCK
        self.filled_end = 0
        self.entries = 0
        self.last_group_sequence = 0
        self.failed = False
        self.unsealable = False
        """Nothing is written to it any more, and sealing it failed: its indexes stay in memory."""
        self.sealed = False
        self.sealed_at = 0.0
        """Monotonic time of its sealing, or of the start when it was sealed before."""
        self.retired = False
        """On its way out: no reader begins on it."""
        self._readers = 0
        self._unread: asyncio.Future[None] | None = None
        self.footer_offset = 0
        self.indexes: dict[LedgerRef, LedgerIndex] = {}
        self.summaries = FooterDirectory()
        # A descriptor of its own: an error of the fill's sync must not be reported there instead of to the
        # writer (Linux tells each open file of it once).
        self._fill_file: DiskFile | None = None

    @property
    def sequence(self) -> int:
        return self.header.sequence

    def durable(self, group_sequence: int) -> Durable:
        """This segment's end as the next group header states it."""
        return Durable(group_sequence, self.sequence, self.durable_end)

    @property
    def lines(self) -> Mapping[LedgerRef, LedgerSummary]:
        """Runs of each ledger. For a sealed segment no copy; for another a moment's view."""
        if self.sealed:
            return self.summaries
        return {ref: index.summary(ref.id, ref.key) for ref, index in self.indexes.items()}

    def line(self, ref: LedgerRef) -> LedgerSummary | None:
        """Runs of one ledger."""
        if self.sealed:
            return self.summaries.get(ref)
        index = self.indexes.get(ref)
        return None if index is None else index.summary(ref.id, ref.key)

    def may_hold(self, ref: LedgerRef, entry_id: int) -> bool:
        """Whether looking for an entry here can succeed; a cheap no saves loading an index."""
        if not self.sealed:
            return ref in self.indexes
        line = self.summaries.get(ref)
        return line is not None and line.base <= entry_id <= line.last_entry_id

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While inside, the file stays open and what it is. On the loop."""
        assert not self.retired, "nobody begins to read what is on its way out"
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._unread is not None:
                self._unread.set_result(None)

    async def retire(self) -> None:
        """Let no more readers begin and wait for those inside."""
        self.retired = True
        if self._readers:
            self._unread = asyncio.get_running_loop().create_future()
            await self._unread

    def index_of(self, ref: LedgerRef) -> LedgerIndex:
        """The open segment's index of a ledger, made when it is the ledger's first run here."""
        index = self.indexes.get(ref)
        if index is None:
            index = self.indexes[ref] = LedgerIndex()
        return index

    def read(self, length: int, offset: int) -> bytes:
        """Bytes of the file; what the disk cannot read of them is damaged. Raises OSError."""
        return read_around(self.file, self.path, length, offset)

    def fill(self, start: int, end: int) -> None:
        """Write zeros from `start` to `end` and sync them. Raises OSError; the segment is then done for."""
        if self._fill_file is None:
            self._fill_file = self.disk.open(self.path)
        for offset in range(start, end, _FILL_SLICE):
            length = min(_FILL_SLICE, end - offset)
            zeros = _ZEROS if length == _FILL_SLICE else bytes(length)
            self._fill_file.pwritev([zeros], offset)
        self._fill_file.fdatasync()

    def seal(self, entries_end: int) -> None:
        """Write the footer at `entries_end`, cut the file after it, sync. What stood there is gone.

        Raises OSError: then the segment stays unsealed and is scanned at the next start.
        """
        by_id = sorted(self.indexes.items(), key=lambda item: (item[0].id, item[0].key))
        ledgers = [(index.summary(ref.id, ref.key), index.firsts, index.offsets) for ref, index in by_id]
        footer = encode_footer(self.header.uuid, self.header.salt, self.last_group_sequence, ledgers)
        length = padded_footer_length(len(footer))
        padding = bytes(length - len(footer) - TRAILER_SIZE)
        trailer = encode_trailer(self.header, entries_end, len(footer))
        self.file.pwritev([footer, padding, trailer], entries_end)
        self.file.truncate(entries_end + length)
        self.file.fdatasync()
        if not self._read_footer(Trailer(self.header, entries_end, len(footer))):
            raise OSError(errno.EIO, "the footer does not read back as written", self.path)

    def read_footer(self) -> bool:
        """Find the footer of a sealed segment and load its directory; False when there is no sound one."""
        size = self.file.size()
        if size < 2 * BLOCK or size % BLOCK:
            return False
        trailer = decode_trailer(self.read(TRAILER_SIZE, size - TRAILER_SIZE))
        if trailer is None or trailer.header != self.header:
            return False
        if trailer.footer_offset + padded_footer_length(trailer.footer_length) != size:
            return False
        self.footer_offset = trailer.footer_offset
        return self._read_footer(trailer)

    def _read_footer(self, trailer: Trailer) -> bool:
        offset = trailer.footer_offset
        uuid, salt = self.header.uuid, self.header.salt
        header = decode_footer_header(self.read(FOOTER_HEADER_SIZE, offset), uuid, salt)
        if header is None or header.length != trailer.footer_length:
            return False
        data = self.read(SUMMARY_SIZE * header.ledger_count, offset + FOOTER_HEADER_SIZE)
        summaries = decode_footer_directory(data, header, salt)
        if summaries is None:
            return False
        self.summaries = summaries
        self.footer_offset = offset
        self.last_group_sequence = header.last_group_sequence
        self.end = self.durable_end = offset
        self.sealed = True
        return True

    def load_index(self, ref: LedgerRef) -> LedgerIndex:
        """A ledger's index from the footer of a sealed segment. Raises DataCorruption when it is damaged."""
        summary = self.summaries[ref]
        data = self.read(8 * summary.runs, self.footer_offset + summary.arrays_offset)
        arrays = decode_footer_arrays(data, summary, self.header.salt)
        if arrays is None:
            raise DataCorruption(f"the index of ledger {ref.id} in {self.path} is damaged")
        return LedgerIndex.from_footer(summary, *arrays)

    def close(self) -> None:
        """Close the descriptors; idempotent."""
        self.file.close()
        if self._fill_file is not None:
            self._fill_file.close()
            self._fill_file = None

    def unlink(self) -> None:
        """Close and remove the file, durably."""
        self.close()
        self.disk.unlink(self.path)
        self.disk.sync_dir(SEGMENTS_DIRECTORY)

    def publish(self) -> None:
        """Give a sealed output of compaction its name, durably: from now on it counts."""
        path = segment_path(self.sequence)
        self.disk.rename(self.path, path)
        self.path = path
        self.disk.sync_dir(SEGMENTS_DIRECTORY)

    def recycle(self) -> str:
        """Close and keep the file as a spare, durably; returns its path. It holds no segment any more."""
        self.close()
        spare = f"{SEGMENTS_DIRECTORY}/{self.sequence:016x}{_SPARE_SUFFIX}"
        self.disk.rename(self.path, spare)
        # Durable before anything is written to it: else the old name could come back with new bytes.
        self.disk.sync_dir(SEGMENTS_DIRECTORY)
        return spare


def new_header(rng: random.Random, sequence: int, created_ms: int, flags: int = 0) -> SegmentHeader:
    """The header of a new segment: uuid and salt that no other file has."""
    return SegmentHeader(rng.randbytes(16), sequence, created_ms, rng.getrandbits(32), flags)


def create_segment(disk: Disk, header: SegmentHeader, filled_bytes: int, spare: str | None = None) -> Segment:
    """A new, durable segment, zero-filled up to `filled_bytes`, or made of a spare file. Raises OSError.

    A spare's blocks are all written already, which is what filling is for; its old bytes are of another uuid
    and salt.
    """
    if spare is not None:
        return _recycled_segment(disk, header, spare)
    segment = Segment(disk, header, disk.open(segment_path(header.sequence), create=True))
    filled_end = max(filled_bytes, 2 * BLOCK)
    try:
        segment.file.pwritev([encode_segment_header(header)], 0)
        segment.fill(BLOCK, filled_end)  # syncs the header too
        disk.sync_dir(SEGMENTS_DIRECTORY)
    except OSError:
        segment.close()
        with contextlib.suppress(OSError):
            disk.unlink(segment.path)
        raise
    segment.filled_end = filled_end
    return segment


def _recycled_segment(disk: Disk, header: SegmentHeader, spare: str) -> Segment:
    header = replace(header, flags=header.flags | FLAG_RECYCLED)
    segment = Segment(disk, header, disk.open(spare), spare)
    try:
        # The new header first, the name after it: under a segment's name stands never an old header.
        segment.file.pwritev([encode_segment_header(header)], 0)
        segment.file.fdatasync()
        segment.publish()
    except OSError:
        segment.close()
        with contextlib.suppress(OSError):
            disk.unlink(segment.path)
        raise
    segment.filled_end = segment.file.size()
    return segment
