"""The segment log's groups and records, format version 1: bytes to values and back, no I/O.

A segment file is a row of 4 KiB blocks: its header, groups, and once sealed a footer (those two are in
`file_codec_v1`). Each group starts at a block. All numbers are little-endian; every structure starts with a
magic.

Checksums are CRC32-C. Those of groups, records and footers start from the segment's random salt instead of 0,
so that no payload and no earlier life of the file's blocks can imitate them. A body's CRC is unsalted: made
once by the writer, it travels with its run.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c
from magnetar.common.errors import UnsupportedFormat
from magnetar.common.naming.txn_id import TxnId

FORMAT_VERSION: Final = 1
KNOWN_FEATURES: Final = 0
"""Incompatible-feature bits known to this release: none exist yet."""

BLOCK: Final = 4096
"""Alignment of groups in bytes."""

UNSALTED: Final = 0
"""The salt of a record header on the wire."""

UNIT: Final = 16
"""Alignment of records in bytes; offsets in indexes count these units."""

GROUP_MAGIC: Final = b"MGRP"
RECORD_MAGIC: Final = b"MREC"

KIND_ENTRIES: Final = 1
"""A run of entries."""
KIND_FENCE: Final = 2
"""A fence: the ledger accepts no more entries from its writer. Has entry id -1 and no body."""
KIND_LIMBO: Final = 3
"""A limbo mark: this store began, or ceased, to be uncertain about the ledger (storage contract, section 3).
Has entry id -1, and its number in place of the first index: odd, in limbo; even, cleared; the highest counts.
"""
LIMBO_TORN: Final = 1
"""Replaces a limbo mark's run flags if only a torn last group may have lost data."""
KIND_LAC: Final = 4
"""A ledger's last add confirmed where no other record carries it. Has entry id -1. Written by compaction."""
KIND_HOLE: Final = 5
"""Entries that were unreadable when their segment was compacted, without a body."""
_KINDS: Final = frozenset({KIND_ENTRIES, KIND_FENCE, KIND_LIMBO, KIND_LAC, KIND_HOLE})

LAYOUT_EQUAL_LENGTHS: Final = 1
"""Layout bit: all entries have the header's entry length, and there is no array of lengths."""
LAYOUT_SINGLE_MESSAGES: Final = 2
"""Layout bit: every entry is one message, and there is no array of counts."""
LAYOUT_TRANSACTION: Final = 4
"""Layout bit: the entries belong to a transaction, whose id follows the arrays. Releases that do not know it
refuse the record, so that they never take an aborted message for a plain one.
"""

_GROUP = struct.Struct("<4sHH16sQIIQQQI8xI")
_DIRECTORY_ENTRY = struct.Struct("<qQqII")
_RECORD = struct.Struct("<4sBBHqQqqqqIIIIII")
_U32 = struct.Struct("<I")
_TXN = struct.Struct("<QQ")

GROUP_HEADER_SIZE: Final = _GROUP.size
DIRECTORY_ENTRY_SIZE: Final = _DIRECTORY_ENTRY.size
RECORD_HEADER_SIZE: Final = _RECORD.size
_GROUP_CRC_AT: Final = GROUP_HEADER_SIZE - 4
_RECORD_CRC_AT: Final = RECORD_HEADER_SIZE - 4
_RECORD_ENTRY_COUNT_AT: Final = 56

COPY_BYTES_MAX: Final = 8192
"""Size in bytes below which buffers are joined before writing; larger ones are passed to the kernel
separately.
"""


def align(length: int, unit: int) -> int:
    """Returns `length` rounded up to a multiple of `unit`."""
    return (length + unit - 1) // unit * unit


def u32_bytes(numbers: Sequence[int]) -> bytes:
    """Returns numbers as little-endian u32 bytes."""
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def u32_array(data: bytes | memoryview) -> array[int]:
    """Returns little-endian u32 bytes as an array."""
    numbers = array("I")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def check_format(version: int, features: int, what: str) -> None:
    """Raises UnsupportedFormat unless this release supports the version and all feature bits."""
    if version != FORMAT_VERSION or features & ~KNOWN_FEATURES:
        raise UnsupportedFormat(
            f"{what} has format version {version} and incompatible features {features:#x}; this release "
            f"reads version {FORMAT_VERSION} and features {KNOWN_FEATURES:#x}. Run the release that wrote it"
        )


# --- Records ---
#
#   0  4  magic "MREC"               56 4  entry count
#   4  1  kind                       60 4  body length, bytes
#   5  1  layout bits                64 4  entry length when all are equal, else 0
#   6  2  run flags                  68 4  header length: 80 and the arrays
#   8  8  ledger id                  72 4  CRC of the body, unsalted
#  16  8  ledger key                 76 4  CRC of bytes 0..75 and the arrays, salted
#  24  8  first entry id, -1: a mark
#  32  8  last add confirmed         80 .. entry lengths, u32 each, unless all are equal
#  40  8  publish time, ms           ..    message counts, u32 each, unless all are 1
#  48  8  index of the first message ..    transaction id, two u64 (most, least), of entries in a transaction
#                                   ..    body: the entries, one after the other; zeros up to 16 bytes


@dataclass(slots=True)  # not frozen: one is made for each record that is read, and freezing takes longer
class RecordHeader:
    """A record without its body."""

    kind: int
    run_flags: int
    ledger_id: int
    ledger_key: int
    first_entry_id: int
    lac: int
    publish_time_ms: int
    first_index: int
    entry_count: int
    body_length: int
    entry_length: int
    header_length: int
    body_crc: int
    lengths: array[int] | None
    """Entry lengths; None if all are `entry_length`."""
    message_counts: array[int] | None
    """Message counts by entry; None if all are 1."""
    txn: TxnId | None = None
    """The transaction of all entries; None without one."""

    @property
    def last_entry_id(self) -> int:
        return self.first_entry_id + self.entry_count - 1

    @property
    def record_length(self) -> int:
        """Length of header, arrays, body and padding in bytes."""
        return align(self.header_length + self.body_length, UNIT)

    def entry_bounds(self) -> list[int]:
        """Returns the entry boundaries in the body: entry i is bounds[i]..bounds[i + 1]."""
        if self.lengths is None:
            return [i * self.entry_length for i in range(self.entry_count + 1)]
        bounds = [0]
        end = 0
        for length in self.lengths:
            end += length
            bounds.append(end)
        return bounds


def encode_record_header(
    kind: int,
    ledger_id: int,
    ledger_key: int,
    first_entry_id: int,
    lac: int,
    *,
    run_flags: int = 0,
    publish_time_ms: int = 0,
    first_index: int = 0,
    lengths: Sequence[int] = (),
    message_counts: Sequence[int] | None = None,
    body_length: int = 0,
    body_crc: int = 0,
    txn: TxnId | None = None,
) -> bytearray:
    """Encodes a record's header and arrays, without the header's own CRC: see `salt_record_header`."""
    layout = 0
    count = len(lengths)
    entry_length = 0
    arrays = b""
    if not count or lengths.count(lengths[0]) == count:
        layout |= LAYOUT_EQUAL_LENGTHS
        entry_length = lengths[0] if count else 0
    else:
        arrays = u32_bytes(lengths)
    if message_counts is None:
        layout |= LAYOUT_SINGLE_MESSAGES
    else:
        arrays += u32_bytes(message_counts)
    if txn is not None:
        layout |= LAYOUT_TRANSACTION
        arrays += _TXN.pack(*txn)
    header = bytearray(
        _RECORD.pack(
            RECORD_MAGIC,
            kind,
            layout,
            run_flags,
            ledger_id,
            ledger_key,
            first_entry_id,
            lac,
            publish_time_ms,
            first_index,
            count,
            body_length,
            entry_length,
            RECORD_HEADER_SIZE + len(arrays),
            body_crc,
            0,
        )
    )
    header += arrays
    return header


def salt_record_header(header: bytearray, salt: int) -> None:
    """Sets the header's own CRC for the segment with this salt; may be called again for another segment."""
    _U32.pack_into(header, _RECORD_CRC_AT, _record_crc(header, salt))


def _record_crc(header: bytes | bytearray | memoryview, salt: int) -> int:
    crc: int = crc32c(header[:_RECORD_CRC_AT], salt)
    if len(header) > RECORD_HEADER_SIZE:
        crc = crc32c(header[RECORD_HEADER_SIZE:], crc)
    return crc


def record_header_length(fixed: bytes) -> int:
    """Returns the length of the whole header that begins with `fixed`; -1 if it is not a record header.

    Only the magic and the plausibility of the length are checked: `decode_record_header` decides.
    """
    if len(fixed) < RECORD_HEADER_SIZE or fixed[:4] != RECORD_MAGIC:
        return -1
    count = _U32.unpack_from(fixed, 56)[0]
    length: int = _U32.unpack_from(fixed, 68)[0]
    return length if RECORD_HEADER_SIZE <= length <= RECORD_HEADER_SIZE + 8 * count + _TXN.size else -1


def record_entry_count(header: bytes) -> int:
    """Returns the entry count of an unverified header. Raises struct.error if it is too short."""
    count: int = _U32.unpack_from(header, _RECORD_ENTRY_COUNT_AT)[0]
    return count


def decode_record_header(header: bytes, salt: int) -> RecordHeader | None:
    """Decodes a whole header (see `record_header_length`); None if it is damaged or of another segment."""
    if len(header) < RECORD_HEADER_SIZE or header[:4] != RECORD_MAGIC:
        return None
    fields = _RECORD.unpack_from(header)
    (_, kind, layout, run_flags, ledger_id, ledger_key, first_entry_id, lac) = fields[:8]
    (publish_time_ms, first_index, count, body_length, entry_length, header_length, body_crc, crc) = fields[
        8:
    ]
    if header_length != len(header) or crc != _record_crc(header, salt):
        return None
    equal = layout & LAYOUT_EQUAL_LENGTHS
    single = layout & LAYOUT_SINGLE_MESSAGES
    split = RECORD_HEADER_SIZE + (0 if equal else 4 * count)
    end = split + (0 if single else 4 * count)
    in_transaction = layout & LAYOUT_TRANSACTION
    if kind not in _KINDS or layout & ~7 or header_length != end + (_TXN.size if in_transaction else 0):
        raise UnsupportedFormat(f"a record of ledger {ledger_id} has kind {kind} and layout {layout:#x}")
    lengths = None if equal else u32_array(header[RECORD_HEADER_SIZE:split])
    if body_length != (count * entry_length if lengths is None else sum(lengths)):
        return None
    return RecordHeader(
        kind,
        run_flags,
        ledger_id,
        ledger_key,
        first_entry_id,
        lac,
        publish_time_ms,
        first_index,
        count,
        body_length,
        entry_length,
        header_length,
        body_crc,
        lengths,
        None if single else u32_array(header[split:end]),
        TxnId(*_TXN.unpack_from(header, end)) if in_transaction else None,
    )


def checksum_body(entries: Sequence[bytes]) -> int:
    """Returns the CRC of a body given as its entries."""
    crc = 0
    for entry in entries:
        crc = crc32c(entry, crc)
    return crc


def body_intact(body: bytes, crc: int) -> bool:
    """Returns whether a whole body matches its writer's checksum."""
    return bool(crc32c(body) == crc)


def entry_checksum_matches(entry: bytes) -> bool | None:
    """Verifies an entry by its own CRC: magic 0x0e01, CRC32-C (big-endian), then the covered bytes.

    Returns None for an entry without one: then only its whole body can be verified.
    """
    if len(entry) < 6 or entry[0] != 0x0E or entry[1] != 0x01:
        return None
    return bool(crc32c(memoryview(entry)[6:]) == int.from_bytes(entry[2:6], "big"))


# --- Groups ---
#
#   0  4  magic "MGRP"                40 8  sequence of the last group known durable
#   4  2  version (1)                 48 8  sequence of the segment it is in
#   6  2  incompatible feature bits   56 8  its end offset there (4096: none yet)
#   8 16  uuid of the segment         64 4  CRC of the directory, salted
#  24  8  group sequence, log-wide    68 8  0
#  32  4  byte length, unpadded       76 4  CRC of bytes 0..75, salted
#  36  4  record count
#
#  80 ..  directory, 32 bytes a record: ledger id (8), key (8), first entry id (8), entry count (4),
#         offset from the group's start in units of 16 bytes (4)
#  ..     the records, stably sorted by ledger; zeros up to the next block
#
# The directory names every record even when the record's own header is damaged, so that a lost entry is a
# visible hole and never a shorter ledger.


@dataclass(frozen=True, slots=True)
class Durable:
    """The known durable end of the log: a group, its segment and its end offset there."""

    group_sequence: int
    segment_sequence: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """A group without its records."""

    sequence: int
    byte_length: int
    record_count: int
    durable: Durable
    directory_crc: int

    @property
    def records_offset(self) -> int:
        return GROUP_HEADER_SIZE + DIRECTORY_ENTRY_SIZE * self.record_count


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One record of a group, as listed in the group's directory."""

    ledger_id: int
    ledger_key: int
    first_entry_id: int
    entry_count: int
    offset: int
    """Byte offset from the group's start."""


@dataclass(slots=True, eq=False)
class EncodedRecord:
    """A record ready for a group: `header` from `encode_record_header`, `body` as the buffers to write."""

    ledger_id: int
    ledger_key: int
    first_entry_id: int
    entry_count: int
    header: bytearray
    body: Sequence[bytes]
    body_length: int

    @property
    def record_length(self) -> int:
        """Bytes in the segment, including padding."""
        return align(len(self.header) + self.body_length, UNIT)


def encoded_group_length(records: Sequence[EncodedRecord]) -> int:
    """Returns the byte length of a group of these records, without padding to a whole block."""
    return (
        GROUP_HEADER_SIZE
        + DIRECTORY_ENTRY_SIZE * len(records)
        + sum(record.record_length for record in records)
    )


def encode_group(
    records: Sequence[EncodedRecord], uuid: bytes, salt: int, sequence: int, durable: Durable
) -> tuple[list[bytes | bytearray], list[int]]:
    """Returns a group as buffers to write, padded to whole blocks, and each record's offset in it.

    Large body buffers are passed on unchanged; small ones are joined.
    """
    directory = bytearray()
    offsets = []
    offset = GROUP_HEADER_SIZE + DIRECTORY_ENTRY_SIZE * len(records)
    buffers: list[bytes | bytearray] = []
    small: list[bytes | bytearray] = [b"", b""]
    for record in records:
        offsets.append(offset)
        directory += _DIRECTORY_ENTRY.pack(
            record.ledger_id, record.ledger_key, record.first_entry_id, record.entry_count, offset // UNIT
        )
        salt_record_header(record.header, salt)
        small.append(record.header)
        for buffer in record.body:
            if len(buffer) < COPY_BYTES_MAX:
                small.append(buffer)
            else:
                buffers.append(b"".join(small))
                buffers.append(buffer)
                small = []
        length = len(record.header) + record.body_length
        offset += length
        if length % UNIT:
            small.append(bytes(UNIT - length % UNIT))
            offset += UNIT - length % UNIT
    if offset % BLOCK:
        small.append(bytes(BLOCK - offset % BLOCK))
    header = bytearray(
        _GROUP.pack(
            GROUP_MAGIC,
            FORMAT_VERSION,
            0,
            uuid,
            sequence,
            offset,
            len(records),
            durable.group_sequence,
            durable.segment_sequence,
            durable.end,
            crc32c(directory, salt),
            0,
        )
    )
    _U32.pack_into(header, _GROUP_CRC_AT, crc32c(header[:_GROUP_CRC_AT], salt))
    front = header + directory
    if buffers:
        buffers[0] = front + buffers[0]
        if small:
            buffers.append(b"".join(small))
    else:
        small[0] = front
        buffers.append(b"".join(small))
    return buffers, offsets


def decode_group_header(header: bytes, uuid: bytes, salt: int) -> GroupHeader | None:
    """Decodes a group's header; None if it is damaged, or of another segment or an earlier use of the
    file.
    """
    if len(header) < GROUP_HEADER_SIZE or header[:4] != GROUP_MAGIC:
        return None
    fields = _GROUP.unpack_from(header)
    (_, version, features, group_uuid, sequence, byte_length, record_count) = fields[:7]
    (durable_sequence, durable_segment, durable_end, directory_crc, crc) = fields[7:]
    if group_uuid != uuid or crc != crc32c(header[:_GROUP_CRC_AT], salt):
        return None
    check_format(version, features, f"group {sequence}")
    if byte_length < GROUP_HEADER_SIZE + DIRECTORY_ENTRY_SIZE * record_count:
        return None
    durable = Durable(durable_sequence, durable_segment, durable_end)
    return GroupHeader(sequence, byte_length, record_count, durable, directory_crc)


def decode_directory(data: bytes, header: GroupHeader, salt: int) -> list[DirectoryEntry] | None:
    """Decodes the records listed in a group; None if its directory is damaged."""
    if len(data) != DIRECTORY_ENTRY_SIZE * header.record_count or crc32c(data, salt) != header.directory_crc:
        return None
    return [
        DirectoryEntry(ledger_id, key, first, count, offset * UNIT)
        for ledger_id, key, first, count, offset in _DIRECTORY_ENTRY.iter_unpack(data)
    ]
