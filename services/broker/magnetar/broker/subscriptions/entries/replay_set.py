"""The entries of a subscription that are to be redelivered, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyroaring import BitMap

_GAP_ENTRIES_MAX: Final = 32
"""Maximum gap between two entries that are read together: it costs less than another read."""


class ReplaySet:
    """A sorted set of (ledger id, entry id): one roaring bitmap for each ledger."""

    __slots__ = ("_ledgers",)

    def __init__(self) -> None:
        self._ledgers: dict[int, BitMap] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    @property
    def first(self) -> tuple[int, int]:
        """The oldest entry; the set must not be empty."""
        ledger_id = min(self._ledgers)
        return ledger_id, self._ledgers[ledger_id].min()

    def add(self, ledger_id: int, entry_id: int) -> None:
        bitmap = self._ledgers.get(ledger_id)
        if bitmap is None:
            bitmap = self._ledgers[ledger_id] = BitMap()
        bitmap.add(entry_id)

    def add_all(self, ledger_id: int, entry_ids: BitMap) -> None:
        """Adds entries of a ledger; takes ownership of `entry_ids`."""
        bitmap = self._ledgers.get(ledger_id)
        if bitmap is not None:
            bitmap |= entry_ids
        elif entry_ids:
            self._ledgers[ledger_id] = entry_ids

    def discard_range(self, ledger_id: int, first: int, last: int) -> None:
        """Removes the entries `first` to `last` inclusive."""
        bitmap = self._ledgers.get(ledger_id)
        if bitmap is not None:
            bitmap.remove_range(first, last + 1)
            if not bitmap:
                del self._ledgers[ledger_id]

    def first_range(self, entries_max: int) -> tuple[int, int, int]:
        """Returns (ledger id, first, last) of the oldest consecutive entries, at most `entries_max`."""
        ledger_id = min(self._ledgers)
        bitmap = self._ledgers[ledger_id]
        first = last = bitmap.min()
        while last - first + 1 < entries_max and last + 1 in bitmap:
            last += 1
        return ledger_id, first, last

    def first_window(self, entries_max: int, span_max: int) -> tuple[int, int, int]:
        """Returns (ledger id, first, last) of the oldest entries that lie near each other, for one read.

        At most `entries_max` of them within a span of `span_max`; not every entry between is in the set.
        """
        ledger_id = min(self._ledgers)
        bitmap = self._ledgers[ledger_id]
        first = last = bitmap.min()
        for entry_id in bitmap[:entries_max]:
            if entry_id - last > _GAP_ENTRIES_MAX or entry_id - first >= span_max:
                break
            last = entry_id
        return ledger_id, first, last

    def ranges(self, ledger_id: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the entries of the set from `first` to `last` inclusive, as (first, last) of each
        stretch.
        """
        bitmap = self._ledgers.get(ledger_id)
        if bitmap is None:
            return
        start = end = -1
        for entry_id in bitmap & BitMap(range(first, last + 1)):
            if entry_id != end + 1 or start < 0:
                if start >= 0:
                    yield start, end
                start = entry_id
            end = entry_id
        if start >= 0:
            yield start, end

    def clear(self) -> None:
        self._ledgers.clear()
