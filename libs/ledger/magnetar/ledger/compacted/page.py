"""Pages: the entries of a segment's ledger.

All numbers are little-endian. Every page begins with:

    0   8  magic "MGNTRCVP"
    8   2  version (1)
    10  2  kind: 1 entries, 2 keys, 3 index, 4 dead sets, 5 end
    12  4  incompatible-feature bits
    16  4  count
    20  4  CRC32-C of everything before and after it

then by kind, each array for all items before the next one:

- entries: number of ledgers (4), by ledger id (8) and entries (4); by entry id (8), publish time in ms (8),
  index of its first message in the topic (8), messages (4), keyed messages (4), length (4), flags (1); batch
  index of each keyed message (4, -1 outside of batches); the entries' bytes. Count: entries.
- keys: the 128-bit hash of each keyed message. Count: hashes.
- index: by page of entries its id (8), ledger id (8) and entry id (8) of its first entry, latest publish
  time (8), ordinals of its first keyed message (4) and first entry (4); number of pages of keys (4); by page
  of keys its id (8), ordinal of its first hash (4). Count: pages of entries.
- dead sets: bytes of a roaring bitmap, or a part of one. Count: its number among the parts.
- end: see `SegmentEnd`. Count: 0.

A keyed message is one with a key that was not compacted out when the segment was written; they are numbered
(ordinals) over the whole segment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from crc32c import crc32c
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.naming.position import Position

MAGIC: Final = b"MGNTRCVP"
VERSION: Final = 1
KNOWN_FEATURES: Final = 0

ENTRIES: Final = 1
KEYS: Final = 2
INDEX: Final = 3
DEAD: Final = 4
END: Final = 5

PAGE_BYTES_MAX: Final = 256 << 10
"""Size in bytes at which a page is complete; an entry larger than that has a page of its own."""

HASH_BYTES: Final = 16

UNKEYED: Final = 1
"""Entry flag: it has messages that no key shadows, or is kept whole; it never dies."""

BATCH: Final = 2
"""Entry flag: a batch."""

PARTIAL: Final = 4
"""Entry flag: compaction has rebuilt the batch without some of its messages."""

ENCRYPTED: Final = 8
"""Entry flag: its payload is encrypted."""

CHUNK: Final = 16
"""Entry flag: a chunk of a larger message."""

OPAQUE: Final = 32
"""Entry flag: it cannot be decoded, so it is kept whole."""

_HEADER: Final = struct.Struct("<8sHHIII")
_CRC_AT: Final = 20
_LEDGER: Final = struct.Struct("<qI")
_COUNT: Final = struct.Struct("<I")
_ENTRY_COLUMNS: Final = 37
_ENTRIES_LINE: Final = struct.Struct("<qqqqII")
_KEYS_LINE: Final = struct.Struct("<qI")
_END: Final = struct.Struct("<qIIQQQQqqqqi")


@dataclass(slots=True)
class StoredEntry:
    """One entry of a segment."""

    position: Position
    publish_time_ms: int
    first_index: int
    messages: int
    """Messages that it counts as, including compacted ones."""
    flags: int
    data: bytes
    hashes: bytes
    """Hashes of its keyed messages, one after the other."""
    batch_indexes: tuple[int, ...]
    """Batch index of each keyed message."""

    @property
    def keyed(self) -> int:
        """Number of keyed messages."""
        return len(self.batch_indexes)


@dataclass(frozen=True, slots=True)
class EntriesPage:
    """A decoded page of entries; lists have an item for each entry."""

    positions: list[Position]
    publish_times_ms: tuple[int, ...]
    first_indexes: tuple[int, ...]
    messages: tuple[int, ...]
    keyed: tuple[int, ...]
    flags: bytes
    batch_indexes: tuple[int, ...]
    """Batch indexes of all keyed messages of the page, in order."""
    bounds: list[int]
    """Offsets in `data` at which entries begin, and the end of the last one."""
    data: bytes
    """The whole page."""

    def entry(self, number: int) -> bytes:
        """Returns an entry's bytes."""
        return self.data[self.bounds[number] : self.bounds[number + 1]]


@dataclass(frozen=True, slots=True)
class EntriesLine:
    """A page of entries in the index."""

    page_id: int
    first: Position
    max_publish_time_ms: int
    first_keyed: int
    """Ordinal of its first keyed message."""
    first_entry: int
    """Ordinal of its first entry."""


@dataclass(frozen=True, slots=True)
class KeysLine:
    """A page of keys in the index."""

    page_id: int
    first_keyed: int


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The end mark of a segment, in its last page: without it the segment does not exist."""

    index_page_id: int
    """Id of the first index page; the others follow it."""
    index_pages: int
    index_crc: int
    """CRC32-C over the bytes of all index pages."""
    entries: int
    keyed: int
    unkeyed: int
    """Entries that no key shadows."""
    byte_length: int
    """Bytes of the entries."""
    first: Position
    last: Position
    last_batch_index: int
    """Highest batch index of the last entry that is not compacted out; -1 outside of batches."""


def encode_page(kind: int, count: int, body: bytes) -> bytes:
    """Encodes a page with its header."""
    head = _HEADER.pack(MAGIC, VERSION, kind, 0, count, 0)[:_CRC_AT]
    return head + crc32c(body, crc32c(head)).to_bytes(4, "little") + body


def decode_page(data: bytes, kind: int) -> tuple[int, memoryview]:
    """Returns (count, body) of a page of this kind. Raises DataCorruption, UnsupportedFormat."""
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise DataCorruption(f"invalid page of a compacted segment: {len(data)} bytes without its magic")
    _, version, found, features, count, checksum = _HEADER.unpack_from(data)
    view = memoryview(data)
    if crc32c(view[_HEADER.size :], crc32c(view[:_CRC_AT])) != checksum:
        raise DataCorruption("a page of a compacted segment does not match its checksum")
    if version != VERSION or features & ~KNOWN_FEATURES:
        raise UnsupportedFormat(
            f"a page of a compacted segment has version {version} and incompatible features {features:#x}; "
            f"this release reads version {VERSION} and features {KNOWN_FEATURES:#x}. Run the release that "
            "wrote it, or a newer one"
        )
    if found != kind:
        raise DataCorruption(f"a page of a compacted segment has kind {found}, expected {kind}")
    return count, view[_HEADER.size :]


def encode_entries(entries: list[StoredEntry]) -> bytes:
    """Encodes a page of entries, which are in the topic's order."""
    ledgers: list[list[int]] = []
    for entry in entries:
        if not ledgers or ledgers[-1][0] != entry.position.ledger_id:
            ledgers.append([entry.position.ledger_id, 0])
        ledgers[-1][1] += 1
    n = len(entries)
    indexes = [index for entry in entries for index in entry.batch_indexes]
    parts = [
        _COUNT.pack(len(ledgers)),
        *(_LEDGER.pack(*ledger) for ledger in ledgers),
        struct.pack(f"<{n}q", *[entry.position.entry_id for entry in entries]),
        struct.pack(f"<{n}q", *[entry.publish_time_ms for entry in entries]),
        struct.pack(f"<{n}q", *[entry.first_index for entry in entries]),
        struct.pack(f"<{n}I", *[entry.messages for entry in entries]),
        struct.pack(f"<{n}I", *[entry.keyed for entry in entries]),
        struct.pack(f"<{n}I", *[len(entry.data) for entry in entries]),
        bytes([entry.flags for entry in entries]),
        struct.pack(f"<{len(indexes)}i", *indexes),
        *(entry.data for entry in entries),
    ]
    return encode_page(ENTRIES, n, b"".join(parts))


def decode_entries(data: bytes) -> EntriesPage:
    """Decodes a page of entries. Raises DataCorruption, UnsupportedFormat."""
    n, body = decode_page(data, ENTRIES)
    try:
        (ledgers,) = _COUNT.unpack_from(body)
        at = 4
        ledger_ids: list[int] = []
        for _ in range(ledgers):
            ledger_id, entries = _LEDGER.unpack_from(body, at)
            ledger_ids += [ledger_id] * entries
            at += _LEDGER.size
        columns = []
        for code, width in (("q", 8), ("q", 8), ("q", 8), ("I", 4), ("I", 4), ("I", 4)):
            columns.append(struct.unpack_from(f"<{n}{code}", body, at))
            at += n * width
        entry_ids, times, indexes, messages, keyed, lengths = columns
        flags = bytes(body[at : at + n])
        at += n
        total = sum(keyed)
        batch_indexes = struct.unpack_from(f"<{total}i", body, at)
        at += 4 * total
    except struct.error as error:
        raise DataCorruption(f"invalid page of {n} entries in a compacted segment: {error}") from error
    start = len(data) - len(body) + at
    bounds = list(accumulate(lengths, initial=start))
    if len(ledger_ids) != n or len(flags) != n or bounds[-1] != len(data):
        raise DataCorruption(f"a page of {n} entries in a compacted segment does not add up")
    positions = list(map(Position, ledger_ids, entry_ids))
    return EntriesPage(positions, times, indexes, messages, keyed, flags, batch_indexes, bounds, data)


def encode_keys(hashes: bytes) -> bytes:
    """Encodes a page of keys from their hashes, one after the other."""
    return encode_page(KEYS, len(hashes) // HASH_BYTES, hashes)


def decode_keys(data: bytes) -> bytes:
    """Returns the hashes of a page of keys. Raises DataCorruption, UnsupportedFormat."""
    count, body = decode_page(data, KEYS)
    if len(body) != count * HASH_BYTES:
        raise DataCorruption(f"a page of {count} keys in a compacted segment has {len(body)} bytes of them")
    return bytes(body)


def encode_index(entries: list[EntriesLine], keys: list[KeysLine]) -> bytes:
    """Encodes an index page."""
    parts = [
        _ENTRIES_LINE.pack(
            line.page_id, *line.first, line.max_publish_time_ms, line.first_keyed, line.first_entry
        )
        for line in entries
    ]
    parts.append(_COUNT.pack(len(keys)))
    parts += [_KEYS_LINE.pack(line.page_id, line.first_keyed) for line in keys]
    return encode_page(INDEX, len(entries), b"".join(parts))


def decode_index(data: bytes) -> tuple[list[EntriesLine], list[KeysLine]]:
    """Decodes an index page. Raises DataCorruption, UnsupportedFormat."""
    count, body = decode_page(data, INDEX)
    keys_at = count * _ENTRIES_LINE.size + _COUNT.size
    try:
        (keys,) = _COUNT.unpack_from(body, keys_at - _COUNT.size)
    except struct.error as error:
        raise DataCorruption(f"invalid index page of a compacted segment: {error}") from error
    if len(body) != keys_at + keys * _KEYS_LINE.size:
        raise DataCorruption(f"an index page of {count} and {keys} pages has {len(body)} bytes")
    entries = [
        EntriesLine(page_id, Position(ledger_id, entry_id), time_ms, first_keyed, first_entry)
        for page_id, ledger_id, entry_id, time_ms, first_keyed, first_entry in _ENTRIES_LINE.iter_unpack(
            body[: count * _ENTRIES_LINE.size]
        )
    ]
    return entries, [KeysLine(*line) for line in _KEYS_LINE.iter_unpack(body[keys_at:])]


def encode_dead(number: int, part: bytes) -> bytes:
    """Encodes a page with one part of a dead set."""
    return encode_page(DEAD, number, part)


def decode_dead(data: bytes, number: int) -> bytes:
    """Returns one part of a dead set. Raises DataCorruption, UnsupportedFormat."""
    found, body = decode_page(data, DEAD)
    if found != number:
        raise DataCorruption(f"part {found} of a dead set, expected {number}")
    return bytes(body)


def encode_end(end: SegmentEnd) -> bytes:
    """Encodes the last page of a segment."""
    body = _END.pack(
        end.index_page_id,
        end.index_pages,
        end.index_crc,
        end.entries,
        end.keyed,
        end.unkeyed,
        end.byte_length,
        *end.first,
        *end.last,
        end.last_batch_index,
    )
    return encode_page(END, 0, body)


def decode_end(data: bytes) -> SegmentEnd:
    """Decodes the last page of a segment. Raises DataCorruption, UnsupportedFormat."""
    _, body = decode_page(data, END)
    if len(body) != _END.size:
        raise DataCorruption(f"the end mark of a compacted segment has {len(body)} bytes")
    index_page_id, index_pages, index_crc, entries, keyed, unkeyed, byte_length, *rest = _END.unpack(body)
    return SegmentEnd(
        index_page_id,
        index_pages,
        index_crc,
        entries,
        keyed,
        unkeyed,
        byte_length,
        Position(*rest[:2]),
        Position(*rest[2:4]),
        rest[4],
    )
