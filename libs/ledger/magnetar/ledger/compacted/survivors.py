"""The second pass over new entries: surviving entries as a segment stores them."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.batch_parts import without
from magnetar.ledger.compacted.entry_keys import EntryKind, batch_messages, examine, key_of
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.page import StoredEntry
from magnetar.ledger.compacted.tail_scan import TailScan
from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap

_GAP_ENTRIES = 32
"""Entries that did not survive and are read all the same, instead of starting another read."""


def stored_entries(
    scan: TailScan, ordinals: BitMap, key_hash: KeyHash, run: Run
) -> Iterator[StoredEntry | None]:
    """Yields the surviving entries of a run that was scanned, and None for each one that did not survive."""
    number = scan.number_at(Position(run.ledger_id, run.first_entry_id))
    index = run.first_index
    for offset, entry in enumerate(run.entries):
        count = 1 if run.message_counts is None else run.message_counts[offset]
        first, end = scan.ordinals_of(number + offset)
        if ordinals.range_cardinality(first, end):
            position = Position(run.ledger_id, run.first_entry_id + offset)
            flags, data, hashes, indexes = _stored(entry, run.flags, key_hash, first, ordinals)
            yield StoredEntry(
                position, run.publish_time_ms, index, count, flags, data, b"".join(hashes), tuple(indexes)
            )
        else:
            yield None
        index += count


def next_stretch(scan: TailScan, ordinals: BitMap, ordinal: int, entries_max: int) -> tuple[int, int]:
    """Returns (number of the entry that has a survivor, number of the last entry to read with it)."""
    first = last = scan.number_of(ordinal)
    while last - first < entries_max:
        _, end = scan.ordinals_of(last)
        following = ordinals.next_set_bit(end) if end <= ordinals.max() else None
        if following is None:
            break
        number = scan.number_of(following)
        if number - last > _GAP_ENTRIES:
            break
        last = number
    return first, last


def _stored(
    entry: bytes, run_flags: int, key_hash: KeyHash, first: int, ordinals: BitMap
) -> tuple[int, bytes, list[bytes], list[int]]:
    """Returns (flags, bytes, hashes, batch indexes) of a surviving entry."""
    examined = examine(entry, run_flags)
    metadata = examined.metadata
    if examined.kind is EntryKind.BATCH and metadata is not None:
        try:
            messages = list(batch_messages(examined.payload, metadata.num_messages_in_batch))
        except DataCorruption:
            return _opaque(entry, metadata)
        live = [each for each in messages if first + each.batch_index in ordinals]
        flags = pages.BATCH
        if len(live) < len(messages):
            kept = {each.batch_index for each in live}
            entry = without(entry, {each.batch_index for each in messages} - kept)
            flags |= pages.PARTIAL
        keyed = [(each.key, each.batch_index) for each in live if each.key is not None]
        if len(keyed) < len(live):
            flags |= pages.UNKEYED
        return flags, entry, [key_hash.of(key) for key, _ in keyed], [index for _, index in keyed]
    if examined.kind in (EntryKind.SINGLE, EntryKind.CHUNK) and metadata is not None:
        flags = pages.CHUNK if examined.kind is EntryKind.CHUNK else 0
        if examined.encrypted:
            flags |= pages.ENCRYPTED
        key = key_of(metadata)
        if key is None:
            return flags | pages.UNKEYED, entry, [], []
        return flags, entry, [key_hash.of(key)], [-1]
    return _opaque(entry, metadata)


def _opaque(entry: bytes, metadata: MessageMetadata | None) -> tuple[int, bytes, list[bytes], list[int]]:
    flags = pages.OPAQUE | pages.UNKEYED
    if metadata is not None and metadata.HasField("num_messages_in_batch"):
        flags |= pages.BATCH
    if metadata is not None and metadata.encryption_keys:
        flags |= pages.ENCRYPTED
    return flags, entry, [], []
