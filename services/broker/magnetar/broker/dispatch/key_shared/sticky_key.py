"""The sticky key of an entry, and the slot that it falls in.

All messages of a key, and so of a slot, go to one consumer at a time. The key is the ordering key; else the
partition key (decoded when it travels as base64); else `<producer name>-<sequence id>`, so that messages
without a key spread and the chunks of one message, which share a sequence id, stay together. Of a batch the
key in the entry's own metadata counts. The slot is murmur3-32 (seed 0) of it modulo 65,536; 0 means "no hash"
to clients, so that a result of 0 becomes 1 (messaging contract, Key_Shared; Apache Pulsar 4.0).

Dispatch asks for every entry, so metadata is not parsed by protobuf: what clients usually send is recognized
by its shape, everything else is walked field by field. Tests hold both equal to protobuf. Stored
bytes were never promised to be well-formed metadata: what cannot be read has the key that Pulsar gives it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Iterable
from struct import Struct
from typing import Final

from magnetar.common.wire.frame import ENTRY_HEADER_BYTES
from magnetar.common.wire.varint import decode_varint
from mmh3 import mmh3_32_uintdigest

SLOTS: Final = 65_536
"""Number of slots: slots are 1 to 65,535, and ranges of slots start at 0."""

NO_KEY: Final = b"NONE_KEY"
"""The sticky key of an entry whose metadata cannot be read."""

_SIZE: Final = Struct(">I")
_SIZE_OFFSET: Final = ENTRY_HEADER_BYTES - _SIZE.size
_NAME_SIZE_OFFSET: Final = ENTRY_HEADER_BYTES + 1
_MASK: Final = SLOTS - 1
_KNOWN_RESTS_MAX: Final = 1_000

_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"

# Fields that may follow the key and do not affect it: numeric fields and a schema version.
_REST: Final = re.compile(
    rb"(?:[\x40\x48\x58\x60]"
    + _VARINT
    + rb"|[\x98\xa0\xb0\xb8\xc0\xc8\xd8\xe0\xe8\xf0]\x01"
    + _VARINT
    + rb"|"
    rb"\x82\x01\x08.{8})*",
    re.DOTALL,
)

# Tags: field number and wire type.
_PRODUCER_NAME: Final = 1 << 3 | 2
_SEQUENCE_ID: Final = 2 << 3
_PROPERTY: Final = 4 << 3 | 2
_PARTITION_KEY: Final = 6 << 3 | 2
_KEY_IS_BASE64: Final = 17 << 3
_ORDERING_KEY: Final = 18 << 3 | 2


def _head(name_bytes: int) -> re.Pattern[bytes]:
    """Compiles the pattern for the start of metadata: a producer name of this length, sequence id, publish
    time.
    """
    size = re.escape(bytes((name_bytes,)))
    return re.compile(
        rb"\x0a" + size + rb"(.{%d})\x10(" % name_bytes + _VARINT + rb")\x18" + _VARINT, re.DOTALL
    )


class _UncompiledHead:
    """Stands for the pattern of one length, and takes its own place in `_HEADS` when first asked.

    To compile all of them takes a thirtieth of a server's start, and clients use a few.
    """

    __slots__ = ("_name_bytes",)

    def __init__(self, name_bytes: int) -> None:
        self._name_bytes = name_bytes

    def match(self, entry: bytes, position: int) -> re.Match[bytes] | None:
        head = _HEADS[self._name_bytes] = _head(self._name_bytes)
        return head.match(entry, position)


_NEVER: Final = re.compile(rb"(?!)")
_HEADS: Final[list[re.Pattern[bytes] | _UncompiledHead]] = [
    _UncompiledHead(size) if size < 128 else _NEVER for size in range(256)
]
"""Patterns by the byte with the length of the producer's name."""


_known_rests: Final[set[bytes]] = set()
"""Bytes after the key of recent entries: mostly the same few, such as the uncompressed size."""


def _is_rest(following: bytes) -> bool:
    if _REST.fullmatch(following) is None:
        return False
    if len(_known_rests) >= _KNOWN_RESTS_MAX:
        _known_rests.clear()
    _known_rests.add(following)
    return True


def slot_of_key(key: bytes) -> int:
    """Returns the slot of a sticky key."""
    return mmh3_32_uintdigest(key) & _MASK or 1


def slots_of(entries: Iterable[bytes]) -> list[int]:
    """Returns the slot of each entry."""
    slots: list[int] = []
    add, digest, heads, known, is_rest = slots.append, mmh3_32_uintdigest, _HEADS, _known_rests, _is_rest
    for entry in entries:
        try:
            match = heads[entry[_NAME_SIZE_OFFSET]].match(entry, ENTRY_HEADER_BYTES)
            if match is not None:
                at = match.end()
                end = _SIZE.unpack_from(entry, _SIZE_OFFSET)[0] + ENTRY_HEADER_BYTES
                while at < end and entry[at] == _PROPERTY and entry[at + 1] < 128:
                    at += 2 + entry[at + 1]
                if at < end and entry[at] == _PARTITION_KEY and entry[at + 1] < 128:
                    key_end = at + 2 + entry[at + 1]
                    following = entry[key_end:end]
                    if (following in known or is_rest(following)) and key_end <= end <= len(entry):
                        add(digest(entry[at + 2 : key_end]) & _MASK or 1)
                        continue
                elif is_rest(entry[at:end]) and at <= end <= len(entry):
                    name, sequence_id = match.groups()
                    add(digest(name + b"-%d" % decode_varint(sequence_id)) & _MASK or 1)
                    continue
        except IndexError:
            pass
        add(slot_of_key(sticky_key(entry)))
    return slots


def sticky_key(entry: bytes) -> bytes:
    """Returns the key that decides which consumer gets an entry; NO_KEY when its metadata cannot be read."""
    try:
        return _sticky_key(entry)
    except (IndexError, ValueError):
        return NO_KEY


def _sticky_key(entry: bytes) -> bytes:
    """Parses the key. Raises IndexError or ValueError for invalid metadata."""
    end = _end_of_metadata(entry)
    at = ENTRY_HEADER_BYTES
    name: bytes | None = None
    partition_key: bytes | None = None
    ordering_key: bytes | None = None
    sequence_id: int | None = None
    base64 = False
    while at < end:
        tag = entry[at]
        at += 1
        if tag >= 0x80:
            tag, at = _varint(entry, at - 1)
        wire_type = tag & 7
        if wire_type == 2:
            size = entry[at]
            at += 1
            if size >= 0x80:
                size, at = _varint(entry, at - 1)
            value_end = at + size
            if tag == _PRODUCER_NAME:
                name = entry[at:value_end]
            elif tag == _PARTITION_KEY:
                partition_key = entry[at:value_end]
            elif tag == _ORDERING_KEY:
                ordering_key = entry[at:value_end]
            at = value_end
        elif wire_type == 0:
            number, at = _varint(entry, at)
            if tag == _SEQUENCE_ID:
                sequence_id = number
            elif tag == _KEY_IS_BASE64:
                base64 = bool(number)
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise ValueError("a group, which metadata never has")
    if at != end:
        raise ValueError("a field that ends behind the metadata")
    if ordering_key is not None:
        return ordering_key
    if partition_key is not None:
        return _from_base64(partition_key) if base64 else partition_key
    if name is None or sequence_id is None:
        return NO_KEY
    return name + b"-%d" % sequence_id


def _end_of_metadata(entry: bytes) -> int:
    if len(entry) < ENTRY_HEADER_BYTES:
        raise ValueError("no entry")
    end: int = _SIZE.unpack_from(entry, _SIZE_OFFSET)[0] + ENTRY_HEADER_BYTES
    if end > len(entry):
        raise ValueError("metadata that ends behind the entry")
    return end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (number, offset after it)."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift >= 70:
            raise ValueError("a number of more than ten bytes")


def _from_base64(text: bytes) -> bytes:
    """Decodes as Java does: padding may be missing, other characters are not allowed."""
    try:
        return b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except InvalidBase64:
        return NO_KEY
