"""The plan of a search in one part: the row groups whose statistics allow a match. No I/O.

Statistics find times, since ledgers are written in about their order, and keys that lie together. A key that
is anywhere is found by the Bloom filter of its column, if the writer added one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magnetar.ledger.cold.part_reader import Footer, RowGroup
from magnetar.ledger.cold.search.bloom_filter import xxh64
from magnetar.ledger.cold.search.condition import Condition


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A row group that may have a match."""

    group: RowGroup
    bloom_offset: int = 0
    """Where the Bloom filter of its keys begins in the object; 0: there is none, or no key is searched."""
    bloom_bytes: int = 0


def planned_groups(footer: Footer, condition: Condition) -> list[PlannedGroup]:
    """Returns the row groups of a part that have to be read for a condition, in order."""
    metadata = footer.metadata
    columns = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    first, last = condition.entries_in(footer.ledger_id, footer.last_entry_id)
    found = []
    for number in footer.row_groups_for(first, last) if first <= last else ():
        stored = metadata.row_group(number)
        if condition.has_times:
            name = "event_time" if condition.by_event_time else "publish_time"
            if not _times_overlap(stored.column(columns[name]).statistics, condition):
                continue
        offset = length = 0
        if condition.key is not None:
            keys = stored.column(columns["key"])
            if not _has_key(keys.statistics, condition):
                continue
            # Releases of pyarrow before 26 do not tell.
            offset = getattr(keys, "bloom_filter_offset", None) or 0
            length = getattr(keys, "bloom_filter_length", None) or 0
        found.append(PlannedGroup(footer.row_groups[number], offset if length else 0, length))
    return found


def key_hashes(condition: Condition) -> tuple[int, ...]:
    """Returns what Bloom filters are asked for: the hashes of the stored forms of the key."""
    return tuple(xxh64(key.encode()) for key in condition.stored_keys)


def _times_overlap(statistics: Any, condition: Condition) -> bool:
    if statistics is None or not statistics.has_min_max:
        return not _has_nulls_only(statistics)  # Null is in no span of time.
    low, high = statistics.min_raw, statistics.max_raw
    if condition.since_ms is not None and high < condition.since_ms * 1000:
        return False
    return condition.until_ms is None or low < condition.until_ms * 1000


def _has_nulls_only(statistics: Any) -> bool:
    """Returns whether the statistics of a column without least and greatest value say that all are null."""
    return statistics is not None and statistics.has_null_count and statistics.num_values <= 0


def _has_key(statistics: Any, condition: Condition) -> bool:
    if statistics is None or not statistics.has_min_max:
        return not _has_nulls_only(statistics)
    # Parquet orders text by its bytes.
    low, high = (value.encode() for value in (statistics.min, statistics.max))
    return any(low <= key.encode() <= high for key in condition.stored_keys)
