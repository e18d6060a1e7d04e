"""Delivery times of entries: deliver_at_time in their metadata, found without parsing entries that lack it.

Few entries have one, and every entry of a Shared subscription is checked. So a run of small entries, or the
joined metadata of entries with metadata of equal length, is searched at once for the first byte of the
field's tag, which is rare; the bytes after a tag must look like a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.frame import ENTRY_HEADER_BYTES

_TAG: Final = b"\x98\x01"
"""Field 19 of MessageMetadata, a varint."""

_FIELD: Final = re.compile(_TAG + rb"[\x80-\xff]{5,8}[\x00-\x7f]", re.DOTALL)
"""Matches the field with a time after 1971. Earlier and negative times cause no delay."""

_TAG_FIRST: Final = _TAG[:1]

_JOINED_ENTRY_BYTES: Final = 512
"""Average entry size in bytes up to which searching the whole run is faster than searching each entry."""

_JOINED_METADATA_MIN: Final = 8
"""Number of entries from which joining their metadata is faster."""

_SIZE_AT: Final = ENTRY_HEADER_BYTES - 4
"""Offset of the metadata's size in an entry."""


def delivered_later(entries: Sequence[bytes], byte_length: int) -> dict[int, int]:
    """Returns deliver_at_time (ms since 1970 UTC, after 1971) by index, for the entries that have one.

    `byte_length` is the total of all entries. Unparsable metadata counts as having none.
    """
    if byte_length <= _JOINED_ENTRY_BYTES * len(entries):
        joined: bytes | None = b"".join(entries)
    else:
        joined = _joined_metadata(entries)
    if joined is not None and not _may_hold(joined):
        return {}
    times = {}
    for index, entry in enumerate(entries):
        end = ENTRY_HEADER_BYTES + int.from_bytes(entry[_SIZE_AT:ENTRY_HEADER_BYTES], "big")
        if entry.find(_TAG, ENTRY_HEADER_BYTES, end) >= 0 and _FIELD.search(entry, ENTRY_HEADER_BYTES, end):
            time_ms = _deliver_at(entry)
            if time_ms > 0:
                times[index] = time_ms
    return times


def _joined_metadata(entries: Sequence[bytes]) -> bytes | None:
    """Returns the concatenated metadata of all entries, with their size; None if sizes differ or entries are
    few.
    """
    count = len(entries)
    if count < _JOINED_METADATA_MIN:
        return None
    size = entries[0][_SIZE_AT:ENTRY_HEADER_BYTES]
    end = ENTRY_HEADER_BYTES + int.from_bytes(size, "big")
    if end > _JOINED_ENTRY_BYTES:
        return None
    joined = b"".join([entry[_SIZE_AT:end] for entry in entries])
    width = end - _SIZE_AT
    if len(joined) != width * count:
        return None
    same = all(joined[at::width] == size[at : at + 1] * count for at in range(len(size)))
    return joined if same else None


def _may_hold(data: bytes) -> bool:
    find = data.find
    at = find(_TAG_FIRST)
    while at >= 0:
        if _FIELD.match(data, at):
            return True
        at = find(_TAG_FIRST, at + 1)
    return False


def _deliver_at(entry: bytes) -> int:
    try:
        return parse_metadata(entry).deliver_at_time
    except DataCorruption:
        return 0
