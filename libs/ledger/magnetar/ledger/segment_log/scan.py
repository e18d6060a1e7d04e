"""Scans a segment without its footer: groups first, then their records, resynchronizing after damage.

`recovery` decides which results count. The scan reports every intact group header and record, and the damaged
regions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    DIRECTORY_ENTRY_SIZE,
    GROUP_HEADER_SIZE,
    RECORD_HEADER_SIZE,
    RECORD_MAGIC,
    UNIT,
    DirectoryEntry,
    GroupHeader,
    RecordHeader,
    align,
    decode_directory,
    decode_group_header,
    decode_record_header,
    record_header_length,
)
from magnetar.ledger.segment_log.file_codec_v1 import FOOTER_HEADER_SIZE, decode_footer_header
from magnetar.ledger.segment_log.segment import Segment
from magnetar.ledger.segment_log.unreadable_blocks import read_around

_WINDOW: Final = 1 << 20


class Window:
    """Reads a file in pieces of 1 MiB, for mostly forward access."""

    def __init__(self, segment: Segment) -> None:
        self._file = segment.file
        self._path = segment.path
        self.size = self._file.size()
        self._start = 0
        self._data = b""
        self.lost: set[int] = set()
        """Blocks that the disk could not read; they count as damaged."""

    def read(self, offset: int, length: int) -> bytes:
        """Returns bytes at an offset; fewer at the end of the file."""
        start = offset - self._start
        if start < 0 or start + length > len(self._data):
            self._start = offset
            self._data = read_around(self._file, self._path, max(length, _WINDOW), offset, self.lost.add)
            start = 0
        return self._data[start : start + length]


@dataclass(frozen=True, slots=True)
class GroupAt:
    """An intact group header and its offset."""

    offset: int
    header: GroupHeader

    @property
    def end(self) -> int:
        """The offset of the next group."""
        return self.offset + align(self.header.byte_length, BLOCK)


@dataclass(slots=True)
class GroupScan:
    """The groups of a segment in file order."""

    groups: list[GroupAt] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Regions between intact groups without an intact group header."""
    content_end: int = BLOCK
    """The offset after which the file holds only zeros or a footer."""
    footer_offset: int | None = None
    """Offset of an intact footer header: everything before it was durable when it was written."""


@dataclass(frozen=True, slots=True)
class RecordAt:
    """A record with an intact header."""

    offset: int
    header: RecordHeader


def scan_groups(segment: Segment, window: Window) -> GroupScan:
    """Walks the group headers. After a damaged one, continues at the next block with an intact header of this
    segment and a higher sequence.
    """
    uuid, salt = segment.header.uuid, segment.header.salt
    scan = GroupScan()
    offset = BLOCK
    damage_start = -1
    last_sequence = 0
    while offset < window.size:
        data = window.read(offset, GROUP_HEADER_SIZE)
        group = decode_group_header(data, uuid, salt)
        if group is not None and group.sequence > last_sequence:
            if damage_start >= 0:
                scan.damaged.append((damage_start, offset))
                damage_start = -1
            last_sequence = group.sequence
            scan.groups.append(GroupAt(offset, group))
            offset = scan.groups[-1].end
            scan.content_end = offset
            continue
        if decode_footer_header(window.read(offset, FOOTER_HEADER_SIZE), uuid, salt) is not None:
            scan.footer_offset = offset
            break
        if window.read(offset, BLOCK).strip(b"\0"):
            if damage_start < 0:
                damage_start = offset
            scan.content_end = offset + BLOCK
        offset += BLOCK
    if damage_start >= 0:
        scan.damaged.append((damage_start, scan.content_end))
    return scan


def first_group(segment: Segment, window: Window) -> GroupAt | None:
    """Returns the first group of a segment if its header is intact."""
    data = window.read(BLOCK, GROUP_HEADER_SIZE)
    header = decode_group_header(data, segment.header.uuid, segment.header.salt)
    return None if header is None else GroupAt(BLOCK, header)


def read_directory(segment: Segment, window: Window, group: GroupAt) -> list[DirectoryEntry] | None:
    """Returns the records listed in a group; None if the directory is damaged."""
    length = DIRECTORY_ENTRY_SIZE * group.header.record_count
    data = window.read(group.offset + GROUP_HEADER_SIZE, length)
    return decode_directory(data, group.header, segment.header.salt)


def read_record(segment: Segment, window: Window, offset: int) -> RecordAt | None:
    """Returns the record at an offset; None without an intact header."""
    length = record_header_length(window.read(offset, RECORD_HEADER_SIZE))
    if length < 0 or offset + length > window.size:
        return None
    header = decode_record_header(window.read(offset, length), segment.header.salt)
    return None if header is None else RecordAt(offset, header)


def salvage_records(
    segment: Segment, window: Window, start: int, end: int, stop: int | None = None
) -> Iterator[RecordAt]:
    """Yields every intact record in a region, found by its magic, if a group's header or directory is lost.
    The salt makes it practically certain that no payload is mistaken for one. Records at or after `stop` are
    ignored.
    """
    offset = start
    last = end - RECORD_HEADER_SIZE if stop is None else min(end - RECORD_HEADER_SIZE, stop - 1)
    while offset <= last:
        chunk = window.read(offset, min(_WINDOW, end - offset))
        found = chunk.find(RECORD_MAGIC)
        while found >= 0 and (offset + found) % UNIT:
            found = chunk.find(RECORD_MAGIC, found + 1)
        if found < 0:
            # The magic is aligned, so it never spans two chunks that start at multiples of a unit.
            offset += align(max(len(chunk), 1), UNIT)
            continue
        record = read_record(segment, window, offset + found)
        if record is None or record.offset + record.header.record_length > align(end, BLOCK):
            offset += found + UNIT
        else:
            yield record
            offset = record.offset + record.header.record_length
