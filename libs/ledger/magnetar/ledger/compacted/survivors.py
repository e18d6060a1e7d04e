"""The second pass over new entries: surviving entries as a segment stores them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final, TypeVar

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.batch_parts import MESSAGES_PER_STEP, without_in_steps
from magnetar.ledger.compacted.entry_keys import EntryKind, batch_messages, examine, key_of
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.page import StoredEntry
from magnetar.ledger.compacted.tail_scan import TailScan
from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap

T = TypeVar("T")

_GAP_ENTRIES: Final = 32
"""Entries a survivor that did not survive and are read all the same, instead of starting another read."""


def stored_entries(
    scan: TailScan, ordinals: BitMap, key_hash: KeyHash, run: Run
) -> Iterator[StoredEntry | None]:
    """Yields the surviving entries of a run that was scanned, and None between short steps."""
    number = scan.number_at(Position(run.ledger_id, run.first_entry_id))
    # Neighbors are found by iterating: rank and select of a bitmap cost by its size.
    starts = scan.starts(number, len(run.entries))
    counts = run.message_counts
    index, counted = run.first_index, 0
    offset = -1
    for ordinal in ordinals.iter_equal_or_larger(starts[0]):
        if ordinal >= starts[-1]:
            return
        if offset >= 0 and ordinal < starts[offset + 1]:
            continue
        offset = bisect_right(starts, ordinal, lo=offset + 1) - 1
        index += offset - counted if counts is None else sum(counts[counted:offset])
        counted = offset
        first = starts[offset]
        flags, data, hashes, indexes = yield from _stored(
            run.entries[offset], run.flags, key_hash, first, ordinals
        )
        yield StoredEntry(
            Position(run.ledger_id, run.first_entry_id + offset),
            run.publish_time_ms,
            index,
            1 if counts is None else counts[offset],
            flags,
            data,
            b"".join(hashes),
            tuple(indexes),
        )


def first_from(ordinals: BitMap, ordinal: int) -> int | None:
    """Returns the first ordinal of a set at or after this one; None without one."""
    return next(ordinals.iter_equal_or_larger(ordinal), None)


def next_stretch(scan: TailScan, ordinals: BitMap, ordinal: int, entries_max: int) -> tuple[int, int]:
    """Returns (number of the entry that has a survivor, number of the last entry to read with it).

    Where survivors are many, that is the last one of `entries_max` entries; where they are few, the last one
    before a gap.
    """
    first = scan.number_of(ordinal)
    _, end = scan.ordinals_of(min(first + entries_max, scan.entries) - 1)
    before = ordinals.rank(end - 1)
    last = scan.number_of(ordinals[before - 1])
    if (before - ordinals.rank(ordinal) + 1) * _GAP_ENTRIES > last - first:
        return first, last
    last = first
    while True:
        _, end = scan.ordinals_of(last)
        following = first_from(ordinals, end)
        if following is None:
            return first, last
        number = scan.number_of(following)
        if number - last > _GAP_ENTRIES or number - first >= entries_max:
            return first, last
        last = number


def _stored(
    entry: bytes, run_flags: int, key_hash: KeyHash, first: int, ordinals: BitMap
) -> Generator[None, None, tuple[int, bytes, list[bytes], list[int]]]:
    """Returns (flags, bytes, hashes, batch indexes) of a surviving entry."""
    examined = examine(entry, run_flags)
    metadata = examined.metadata
    if examined.kind is EntryKind.BATCH and metadata is not None:
        try:
            messages = yield from _in_steps(batch_messages(examined.payload, metadata.num_messages_in_batch))
        except DataCorruption:
            return _opaque(entry, metadata)
        live = [each for each in messages if first + each.batch_index in ordinals]
        flags = pages.BATCH
        if len(live) < len(messages):
            kept = {each.batch_index for each in live}
            entry = yield from without_in_steps(entry, {each.batch_index for each in messages} - kept)
            flags |= pages.PARTIAL
        keyed = [(each.key, each.batch_index) for each in live if each.key is not None]
        if len(keyed) < len(live):
            flags |= pages.UNKEYED
        hashes = yield from _in_steps(key_hash.of(key) for key, _ in keyed)
        return flags, entry, hashes, [index for _, index in keyed]
    if examined.kind in (EntryKind.SINGLE, EntryKind.CHUNK) and metadata is not None:
        flags = pages.CHUNK if examined.kind is EntryKind.CHUNK else 0
        if examined.encrypted:
            flags |= pages.ENCRYPTED
        key = key_of(metadata)
        if key is None:
            return flags | pages.UNKEYED, entry, [], []
        return flags, entry, [key_hash.of(key)], [-1]
    return _opaque(entry, metadata)


def _in_steps(items: Iterator[T]) -> Generator[None, None, list[T]]:
    """Returns a list of all items."""
    found: list[T] = []
    while more := list(islice(items, MESSAGES_PER_STEP)):
        found += more
        yield
    return found


def _opaque(entry: bytes, metadata: MessageMetadata | None) -> tuple[int, bytes, list[bytes], list[int]]:
    flags = pages.OPAQUE | pages.UNKEYED
    if metadata is not None and metadata.HasField("num_messages_in_batch"):
        flags |= pages.BATCH
    if metadata is not None and metadata.encryption_keys:
        flags |= pages.ENCRYPTED
    return flags, entry, [], []
