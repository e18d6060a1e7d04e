"""One segment file: creation, zero-filling ahead of the writer, sealing, opening, recycling and removal.

Everything here blocks and runs in a pool, except attribute reads. A segment counts as created when its header
is synced and its name is in a synced directory.
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
    """Returns the path of the segment with this sequence."""
    return f"{SEGMENTS_DIRECTORY}/{sequence:016x}{_SUFFIX}"


def compaction_path(sequence: int) -> str:
    """Returns the path of a compaction output before it counts: a file of this name is never read."""
    return f"{SEGMENTS_DIRECTORY}/{sequence:016x}{_NEW_SUFFIX}"


def segment_sequences(disk: Disk) -> list[int]:
    """Returns the sequences of the existing segment files, oldest first; other names are ignored."""
    names = [name for name in disk.listdir(SEGMENTS_DIRECTORY) if name.endswith(_SUFFIX)]
    return sorted(int(name[: -len(_SUFFIX)], 16) for name in names)


def leftover_paths(disk: Disk) -> tuple[list[str], list[str]]:
    """Returns (files of interrupted compactions, spare files for recycling)."""
    names = disk.listdir(SEGMENTS_DIRECTORY)
    paths = [f"{SEGMENTS_DIRECTORY}/{name}" for name in names]
    unfinished = [path for path in paths if path.endswith(_NEW_SUFFIX)]
    return unfinished, [path for path in paths if path.endswith(_SPARE_SUFFIX)]


class Segment:
    """An open file of the log.

    `end` is the offset of the next group; everything before `durable_end` is durable and readable. `indexes`
    holds every ledger while the segment is open. Once sealed, `summaries` has a line per ledger and indexes
    are read from the footer on demand (see `load_index`).
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
        """Whether it accepts no writes and its sealing failed: its indexes stay in memory."""
        self.sealed = False
        self.sealed_at = 0.0
        """Monotonic time of its sealing, or of the start if it was sealed before."""
        self.retired = False
        """Whether it is being removed: no new reader begins."""
        self._readers = 0
        self._unread: asyncio.Future[None] | None = None
        self.footer_offset = 0
        self.indexes: dict[LedgerRef, LedgerIndex] = {}
        self.summaries = FooterDirectory()
        # A separate descriptor: otherwise an error of the fill's sync could be reported here instead of to
        # the writer (Linux reports each error once per open file).
        self._fill_file: DiskFile | None = None

    @property
    def sequence(self) -> int:
        return self.header.sequence

    def durable(self, group_sequence: int) -> Durable:
        """Returns this segment's end for the next group header."""
        return Durable(group_sequence, self.sequence, self.durable_end)

    @property
    def lines(self) -> Mapping[LedgerRef, LedgerSummary]:
        """Returns the runs of each ledger: for a sealed segment without a copy, for another as of now."""
        if self.sealed:
            return self.summaries
        return {ref: index.summary(ref.id, ref.key) for ref, index in self.indexes.items()}

    def line(self, ref: LedgerRef) -> LedgerSummary | None:
        """Returns the runs of one ledger."""
        if self.sealed:
            return self.summaries.get(ref)
        index = self.indexes.get(ref)
        return None if index is None else index.summary(ref.id, ref.key)

    def may_hold(self, ref: LedgerRef, entry_id: int) -> bool:
        """Returns whether the segment may contain an entry; a cheap check that avoids loading an index."""
        if not self.sealed:
            return ref in self.indexes
        line = self.summaries.get(ref)
        return line is not None and line.base <= entry_id <= line.last_entry_id

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps the file open and unchanged within the context. On the loop."""
        assert not self.retired, "a segment being removed takes no new readers"
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers and self._unread is not None:
                self._unread.set_result(None)

    async def retire(self) -> None:
        """Refuses new readers and waits for current ones."""
        self.retired = True
        if self._readers:
            self._unread = asyncio.get_running_loop().create_future()
            await self._unread

    def index_of(self, ref: LedgerRef) -> LedgerIndex:
        """Returns the open segment's index of a ledger, created at the ledger's first run here."""
        index = self.indexes.get(ref)
        if index is None:
            index = self.indexes[ref] = LedgerIndex()
        return index

    def read(self, length: int, offset: int) -> bytes:
        """Reads bytes of the file; unreadable ones count as damaged. Raises OSError."""
        return read_around(self.file, self.path, length, offset)

    def fill(self, start: int, end: int) -> None:
        """Writes zeros from `start` to `end` and syncs them. Raises OSError; the segment is then unusable for
        writes.
        """
        if self._fill_file is None:
            self._fill_file = self.disk.open(self.path)
        for offset in range(start, end, _FILL_SLICE):
            length = min(_FILL_SLICE, end - offset)
            zeros = _ZEROS if length == _FILL_SLICE else bytes(length)
            self._fill_file.pwritev([zeros], offset)
        self._fill_file.fdatasync()

    def seal(self, entries_end: int) -> None:
        """Writes the footer at `entries_end`, truncates the file after it, and syncs.

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
        """Finds the footer of a sealed segment and loads its directory; returns False without an
        intact one.
        """
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
        """Loads a ledger's index from the footer of a sealed segment. Raises DataCorruption if it is
        damaged.
        """
        summary = self.summaries[ref]
        data = self.read(8 * summary.runs, self.footer_offset + summary.arrays_offset)
        arrays = decode_footer_arrays(data, summary, self.header.salt)
        if arrays is None:
            raise DataCorruption(f"the index of ledger {ref.id} in {self.path} is damaged")
        return LedgerIndex.from_footer(summary, *arrays)

    def close(self) -> None:
        """Closes the descriptors; idempotent."""
        self.file.close()
        if self._fill_file is not None:
            self._fill_file.close()
            self._fill_file = None

    def unlink(self) -> None:
        """Closes and removes the file, durably."""
        self.close()
        self.disk.unlink(self.path)
        self.disk.sync_dir(SEGMENTS_DIRECTORY)

    def publish(self) -> None:
        """Gives a sealed compaction output its name, durably: from now on it counts."""
        path = segment_path(self.sequence)
        self.disk.rename(self.path, path)
        self.path = path
        self.disk.sync_dir(SEGMENTS_DIRECTORY)

    def recycle(self) -> str:
        """Closes the file and keeps it as a spare, durably; returns its path. It is no longer a segment."""
        self.close()
        spare = f"{SEGMENTS_DIRECTORY}/{self.sequence:016x}{_SPARE_SUFFIX}"
        self.disk.rename(self.path, spare)
        # Durable before the next write: otherwise the old name could return with new bytes.
        self.disk.sync_dir(SEGMENTS_DIRECTORY)
        return spare


def new_header(rng: random.Random, sequence: int, created_ms: int, flags: int = 0) -> SegmentHeader:
    """Returns the header of a new segment, with a unique uuid and salt."""
    return SegmentHeader(rng.randbytes(16), sequence, created_ms, rng.getrandbits(32), flags)


def create_segment(disk: Disk, header: SegmentHeader, filled_bytes: int, spare: str | None = None) -> Segment:
    """Creates a durable segment, zero-filled up to `filled_bytes`, or from a spare file. Raises OSError.

    A spare's blocks are already written, which is the purpose of filling; its old bytes have another uuid and
    salt.
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
        # The new header first, then the name: a segment's name never refers to an old header.
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
