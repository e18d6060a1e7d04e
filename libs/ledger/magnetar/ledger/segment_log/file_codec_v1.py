"""Parts that occur once per segment file, format version 1: header, footer and trailer. No I/O.

    block 0     segment header, twice: at 0 and at 2048, so that one damaged sector loses nothing
    block 1..   groups (see `codec_v1`)
    then        the footer of a sealed segment, at a block; its trailer is the last 64 bytes of the file

A footer is the open segment's index as it was in memory: sealing is a copy, not a sort.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c
from magnetar.common.errors import DataCorruption
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    FORMAT_VERSION,
    LIMBO_TORN,
    align,
    check_format,
    encode_record_header,
    u32_array,
    u32_bytes,
)

SEGMENT_MAGIC: Final = b"MGNTRSEG"
FOOTER_MAGIC: Final = b"MFTR"
TRAILER_MAGIC: Final = b"MTRL"

HEADER_COPY_OFFSET: Final = 2048
"""Offset of the segment header's second copy."""

MARK_FENCED: Final = 1
"""Footer mark: the segment holds a fence of this ledger."""
MARK_LIMBO: Final = 2
"""Footer mark: the ledger is in limbo by its last limbo mark in the segment."""
MARK_TORN: Final = 4
"""Footer mark: by that limbo mark, only a torn last group may have lost data."""
_SPAN_SHIFT: Final = 8
_DOUBT_SHIFT: Final = 16
# 16 bits are left for the number of a limbo mark: a ledger can enter limbo 32,768 times.

FLAG_RECYCLED: Final = 1
"""Header flag: the file had an earlier use, so bytes that are not a group of this one may be old rather than
damaged.
"""
FLAG_SORTED: Final = 2
"""Header flag: written by compaction, ordered by ledger and entry."""

_SEGMENT = struct.Struct("<8sHHI16sQqI8xI")
_FOOTER = struct.Struct("<4sHH16sQIII16xI")
_SUMMARY = struct.Struct("<qQqqqQIIII")
_REF = struct.Struct("<qQ")
_TRAILER = struct.Struct("<4sHH16sQIIQq4xI")
_U32 = struct.Struct("<I")

FOOTER_HEADER_SIZE: Final = _FOOTER.size
SUMMARY_SIZE: Final = _SUMMARY.size
TRAILER_SIZE: Final = _TRAILER.size


# --- Segment header ---
#
#   0  8  magic "MGNTRSEG"          32 8  segment sequence: the file's name, orders the log
#   8  2  format version (1)        40 8  created, ms since 1970 UTC
#  10  2  flags (FLAG_ bits)        48 4  salt, random
#  12  4  incompatible feature bits 52 8  0
#  16 16  uuid, random              60 4  CRC of bytes 0..59, unsalted


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header in a segment file's first block."""

    uuid: bytes
    sequence: int
    created_ms: int
    salt: int
    flags: int = field(default=0, compare=False)
    """FLAG_ bits; hints, so the trailer does not repeat them."""


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Encodes the whole first block."""
    copy = bytearray(
        _SEGMENT.pack(
            SEGMENT_MAGIC,
            FORMAT_VERSION,
            header.flags,
            0,
            header.uuid,
            header.sequence,
            header.created_ms,
            header.salt,
            0,
        )
    )
    _U32.pack_into(copy, 60, crc32c(copy[:60]))
    half = bytes(copy).ljust(HEADER_COPY_OFFSET, b"\0")
    return half + half


def decode_segment_header(block: bytes) -> SegmentHeader:
    """Decodes either copy.

    Raises UnsupportedFormat for a version or feature bit of a later release, DataCorruption if neither copy
    is intact.
    """
    for start in (0, HEADER_COPY_OFFSET):
        copy = block[start : start + _SEGMENT.size]
        if len(copy) < _SEGMENT.size:
            continue
        magic, version, flags, features, uuid, sequence, created_ms, salt, crc = _SEGMENT.unpack(copy)
        if magic != SEGMENT_MAGIC or crc != crc32c(copy[:60]):
            continue
        check_format(version, features, f"segment {sequence}")
        return SegmentHeader(uuid, sequence, created_ms, salt, flags)
    raise DataCorruption("neither copy of the segment header is whole")


# --- Footer ---
#
#   0  4  magic "MFTR"                24 8  sequence of the last group
#   4  2  version (1)                 32 4  ledger count
#   6  2  incompatible feature bits   36 4  length of the footer with its arrays, bytes
#   8 16  uuid of the segment         40 4  CRC of the ledger directory, salted
#                                     44 16 0
#                                     60 4  CRC of bytes 0..59, salted
#
#  64 ..  ledger directory, 64 bytes a ledger, by ledger id and key:
#         ledger id (8), key (8), base (8), last entry id (8), last add confirmed (8), bytes of entries (8),
#         runs (4), marks (4), offset of its arrays from the footer's start (4), their CRC, salted (4)
#         marks: bit 0 fenced, bit 1 in limbo, bits 8-15 where runs may overlap: no run holds more than two to
#         this many entries, bits 16-31 number of the last limbo mark
#  ..     per ledger: first entry id minus base of each run (u32 each), offset of each run in the file in
#         units of 16 bytes (u32 each)


class LedgerSummary(NamedTuple):
    """One ledger in one segment, without its run offsets."""

    ledger_id: int
    ledger_key: int
    base: int
    last_entry_id: int
    """The last entry id; -1 if the segment holds only marks of the ledger."""
    lac: int
    byte_length: int
    runs: int
    marks: int
    arrays_offset: int = 0
    arrays_crc: int = 0


def pack_doubt(number: int, run_flags: int) -> int:
    """Packs a limbo mark so that the later of two is the higher number: its number (odd, in limbo; even,
    cleared), and as the lowest bit whether only a torn last group may have lost data.
    """
    return number << 1 | run_flags & LIMBO_TORN


def is_limbo(doubt: int) -> bool:
    """Returns whether the last mark puts the ledger in limbo."""
    return bool(doubt & 2)


def encode_mark(kind: int, ledger_id: int, ledger_key: int, lac: int, doubt: int = 0) -> bytearray:
    """Encodes the record of a mark: a fence, a last add confirmed, or a packed limbo mark."""
    return encode_record_header(
        kind, ledger_id, ledger_key, -1, lac, run_flags=doubt & LIMBO_TORN, first_index=doubt >> 1
    )


def doubt_marks(doubt: int) -> int:
    """Returns a ledger's last limbo mark as footer marks."""
    torn = MARK_TORN if doubt & LIMBO_TORN else 0
    return doubt >> 1 << _DOUBT_SHIFT | (MARK_LIMBO if is_limbo(doubt) else 0) | torn


def doubt_of(marks: int) -> int:
    """Returns a ledger's last limbo mark, packed; 0 without one."""
    number = marks >> _DOUBT_SHIFT or (1 if marks & MARK_LIMBO else 0)
    return pack_doubt(number, LIMBO_TORN if marks & MARK_TORN else 0)


def span_marks(span: int) -> int:
    """Returns the maximum entries of a ledger's runs as footer marks: rounded up to a power of two."""
    return (span - 1).bit_length() << _SPAN_SHIFT if span else 0


def span_of(marks: int) -> int:
    """Returns the maximum entries of a run if runs may overlap; 0 if they do not."""
    exponent = marks >> _SPAN_SHIFT & 0xFF
    return 1 << exponent if exponent else 0


@dataclass(frozen=True, slots=True)
class FooterHeader:
    """A footer without its directory and arrays."""

    last_group_sequence: int
    ledger_count: int
    length: int
    directory_crc: int


def encode_footer(
    uuid: bytes,
    salt: int,
    last_group_sequence: int,
    ledgers: list[tuple[LedgerSummary, array[int], array[int]]],
) -> bytes:
    """Encodes header, directory and arrays; `ledgers` has (summary, first entry ids minus base, offsets in
    units).
    """
    offset = FOOTER_HEADER_SIZE + SUMMARY_SIZE * len(ledgers)
    directory = bytearray()
    arrays = []
    for summary, firsts, offsets in ledgers:
        data = u32_bytes(firsts) + u32_bytes(offsets)
        directory += _SUMMARY.pack(
            summary.ledger_id,
            summary.ledger_key,
            summary.base,
            summary.last_entry_id,
            summary.lac,
            summary.byte_length,
            len(firsts),
            summary.marks,
            offset,
            crc32c(data, salt),
        )
        arrays.append(data)
        offset += len(data)
    header = bytearray(
        _FOOTER.pack(
            FOOTER_MAGIC,
            FORMAT_VERSION,
            0,
            uuid,
            last_group_sequence,
            len(ledgers),
            offset,
            crc32c(directory, salt),
            0,
        )
    )
    _U32.pack_into(header, FOOTER_HEADER_SIZE - 4, crc32c(header[:-4], salt))
    return b"".join((header, directory, *arrays))


def decode_footer_header(data: bytes, uuid: bytes, salt: int) -> FooterHeader | None:
    """Decodes a footer's header; None if it is damaged or of another segment."""
    if len(data) < FOOTER_HEADER_SIZE or data[:4] != FOOTER_MAGIC:
        return None
    fields = _FOOTER.unpack_from(data)
    _, version, features, footer_uuid, last_group_sequence, ledger_count, length, directory_crc, crc = fields
    if footer_uuid != uuid or crc != crc32c(data[: FOOTER_HEADER_SIZE - 4], salt):
        return None
    check_format(version, features, "a segment footer")
    return FooterHeader(last_group_sequence, ledger_count, length, directory_crc)


def decode_footer_directory(data: bytes, header: FooterHeader, salt: int) -> FooterDirectory | None:
    """Decodes the ledgers of a sealed segment; None if the directory is damaged."""
    if len(data) != SUMMARY_SIZE * header.ledger_count or crc32c(data, salt) != header.directory_crc:
        return None
    return FooterDirectory(data)


class FooterDirectory(Mapping[LedgerRef, LedgerSummary]):
    """A footer's ledger directory in its file form: 64 bytes per ledger, searched by bisection.

    A bookie has a million such lines in memory; as objects they would need ten times as much.
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes = b"") -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data) // SUMMARY_SIZE

    def __iter__(self) -> Iterator[LedgerRef]:
        for fields in _SUMMARY.iter_unpack(self._data):
            yield LedgerRef(fields[0], fields[1])

    def __getitem__(self, ref: LedgerRef) -> LedgerSummary:
        wanted = ref.id, ref.key
        data, low, high = self._data, 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _REF.unpack_from(data, middle * SUMMARY_SIZE) < wanted:
                low = middle + 1
            else:
                high = middle
        if low < len(self) and _REF.unpack_from(data, low * SUMMARY_SIZE) == wanted:
            return LedgerSummary._make(_SUMMARY.unpack_from(data, low * SUMMARY_SIZE))
        raise KeyError(ref)

    def values(self) -> ValuesView[LedgerSummary]:
        return _Lines(self)

    def items(self) -> ItemsView[LedgerRef, LedgerSummary]:
        return _Items(self)

    def lines(self) -> Iterator[LedgerSummary]:
        """Yields every line, in order."""
        return map(LedgerSummary._make, _SUMMARY.iter_unpack(self._data))


class _Lines(ValuesView[LedgerSummary]):
    _mapping: FooterDirectory

    def __iter__(self) -> Iterator[LedgerSummary]:
        return self._mapping.lines()


class _Items(ItemsView[LedgerRef, LedgerSummary]):
    _mapping: FooterDirectory

    def __iter__(self) -> Iterator[tuple[LedgerRef, LedgerSummary]]:
        for line in self._mapping.lines():
            yield LedgerRef(line.ledger_id, line.ledger_key), line


def decode_footer_arrays(
    data: bytes, summary: LedgerSummary, salt: int
) -> tuple[array[int], array[int]] | None:
    """Decodes (first entry ids minus base, offsets in units) of one ledger; None if damaged."""
    if len(data) != 8 * summary.runs or crc32c(data, salt) != summary.arrays_crc:
        return None
    return u32_array(data[: 4 * summary.runs]), u32_array(data[4 * summary.runs :])


# --- Trailer: a second copy of what it takes to read a sealed segment, and where its footer is ---
#
#   0  4  magic "MTRL"                32 4  salt
#   4  2  version (1)                 36 4  length of the footer
#   6  2  incompatible feature bits   40 8  offset of the footer in the file
#   8 16  uuid of the segment         48 8  created, ms since 1970 UTC
#  24  8  segment sequence            56 4  0
#                                     60 4  CRC of bytes 0..59, unsalted


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a sealed segment's file."""

    header: SegmentHeader
    footer_offset: int
    footer_length: int


def encode_trailer(header: SegmentHeader, footer_offset: int, footer_length: int) -> bytes:
    """Encodes the last 64 bytes of a sealed segment."""
    data = bytearray(
        _TRAILER.pack(
            TRAILER_MAGIC,
            FORMAT_VERSION,
            0,
            header.uuid,
            header.sequence,
            header.salt,
            footer_length,
            footer_offset,
            header.created_ms,
            0,
        )
    )
    _U32.pack_into(data, TRAILER_SIZE - 4, crc32c(data[:-4]))
    return bytes(data)


def decode_trailer(data: bytes) -> Trailer | None:
    """Decodes a trailer; None if these 64 bytes are not one: the segment is not sealed, or its end is
    damaged.
    """
    if len(data) != TRAILER_SIZE or data[:4] != TRAILER_MAGIC:
        return None
    fields = _TRAILER.unpack(data)
    _, version, features, uuid, sequence, salt, footer_length, footer_offset, created_ms, crc = fields
    if crc != crc32c(data[:-4]):
        return None
    check_format(version, features, f"segment {sequence}")
    return Trailer(SegmentHeader(uuid, sequence, created_ms, salt), footer_offset, footer_length)


def padded_footer_length(length: int) -> int:
    """Returns the bytes from a footer's start to the end of the file, including the trailer, in whole
    blocks.
    """
    return align(length + TRAILER_SIZE, BLOCK)
