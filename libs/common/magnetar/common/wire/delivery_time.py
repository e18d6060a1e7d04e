"""When entries are to be delivered: deliver_at_time in their metadata, found without parsing those without.

Nearly no entry has one, and all of a Shared subscription's are asked. So a run of small entries, or all the
metadata of one whose entries have metadata of one length, is searched in one piece for the first byte of the
field's tag, which is rare; what follows a tag must look like a time.
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
"""The field with a time after 1971. Earlier ones, and negative ones, do not delay anything."""

_TAG_FIRST: Final = _TAG[:1]

_JOINED_ENTRY_BYTES: Final = 512
"""Up to so many bytes an entry, on average, searching all of a run is quicker than searching in each."""

_JOINED_METADATA_MIN: Final = 8
"""From so many entries on, cutting out their metadata is."""

_SIZE_AT: Final = ENTRY_HEADER_BYTES - 4
"""Where the size of the metadata stands in an entry."""


def delivered_later(entries: Sequence[bytes], byte_length: int) -> dict[int, int]:
    """deliver_at_time (ms since 1970 UTC) by index, of those entries that have one (after 1971).

    `byte_length` is that of all entries. Metadata that does not parse has none.
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
    """The metadata of all entries behind each other, with their sizes; None when these differ, or are few."""
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
