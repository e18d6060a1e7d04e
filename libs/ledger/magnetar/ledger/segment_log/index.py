"""The index of a ledger's runs in one segment: two arrays of 32-bit numbers and a binary search.

A run costs eight bytes however many entries it holds: its first entry id minus the ledger's base in this
segment, and its offset in units of 16 bytes. The entry count is in the record.

Runs of one writer are in order. On a bookie they may have gaps (striping), arrive in any order (copies by
auto-recovery) and even overlap (a damaged record and its repair); then `candidates` yields more than one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from magnetar.ledger.segment_log.codec_v1 import UNIT
from magnetar.ledger.segment_log.file_codec_v1 import (
    MARK_FENCED,
    LedgerSummary,
    doubt_marks,
    doubt_of,
    is_limbo,
    span_marks,
    span_of,
)

NO_RUN: Final = -1


class LedgerIndex:
    """The runs of one ledger in one segment, by first entry id, with the footer's data."""

    __slots__ = (
        "_longest",
        "base",
        "byte_length",
        "doubt",
        "fenced",
        "firsts",
        "incomplete",
        "lac",
        "last_entry_id",
        "offsets",
        "span",
    )

    def __init__(self) -> None:
        self.base = 0
        self.firsts = array("I")
        self.offsets = array("I")
        self.last_entry_id = -1
        self.lac = -1
        self.byte_length = 0
        self.fenced = False
        self.doubt = 0
        """The last limbo mark, packed (`file_codec_v1.pack_doubt`); 0 without one."""
        self.span = 0
        """Maximum entries of a run; 0 if runs certainly do not overlap."""
        self.incomplete = False
        """Whether the index was rebuilt from a damaged segment without all runs: entries not in it may be
        lost.
        """
        self._longest = 1

    def add_run(self, first_entry_id: int, entry_count: int, offset: int, byte_length: int, lac: int) -> None:
        """Adds a durable run whose record starts at byte `offset` of the file.

        A copy of a run (of a rewritten tail, of compaction) replaces it: they are equal, so a damaged one is
        not the only one indexed.
        """
        if not self.firsts:
            self.base = first_entry_id
        if first_entry_id < self.base:
            shift = self.base - first_entry_id
            self.firsts = array("I", [first + shift for first in self.firsts])
            self.base = first_entry_id
        relative = first_entry_id - self.base
        unit_offset = offset // UNIT
        self._longest = max(self._longest, entry_count)
        if first_entry_id > self.last_entry_id or not self.firsts:
            self.firsts.append(relative)
            self.offsets.append(unit_offset)
        else:
            place = bisect_right(self.firsts, relative)
            if place and self.firsts[place - 1] == relative and entry_count == self._longest:
                self.offsets[place - 1] = unit_offset
                self.last_entry_id = max(self.last_entry_id, first_entry_id + entry_count - 1)
                if place < len(self.firsts) and self.firsts[place] < relative + entry_count:
                    self.span = self._longest
                return
            if self._longest > 1:
                self.span = self._longest
            self.firsts.insert(place, relative)
            self.offsets.insert(place, unit_offset)
        if self.span:
            self.span = self._longest
        self.byte_length += byte_length
        self.last_entry_id = max(self.last_entry_id, first_entry_id + entry_count - 1)
        self.lac = max(self.lac, lac)

    @property
    def limbo(self) -> bool:
        """Returns whether the last mark puts the ledger in limbo."""
        return is_limbo(self.doubt)

    def find(self, entry_id: int) -> int:
        """Returns the place of the first run that may hold an entry, the only one unless runs overlap, or
        NO_RUN.
        """
        if not self.firsts or not self.base <= entry_id <= self.last_entry_id:
            return NO_RUN
        return bisect_right(self.firsts, entry_id - self.base) - 1

    def candidates(self, entry_id: int) -> Iterator[int]:
        """Yields places of all runs that may hold an entry, the latest beginning first."""
        place = self.find(entry_id)
        if place == NO_RUN:
            return
        yield place
        oldest = entry_id - self.base - self.span
        while self.span and place and self.firsts[place - 1] > oldest:
            place -= 1
            yield place

    def next_after(self, entry_id: int) -> int | None:
        """Returns the first entry id of the first run that begins after an entry."""
        place = bisect_right(self.firsts, entry_id - self.base) if entry_id >= self.base else 0
        return self.first_entry_id(place) if place < len(self.firsts) else None

    def end_after(self, place: int) -> int:
        """Returns an upper bound for the id after the run's last entry."""
        following = bisect_right(self.firsts, self.firsts[place])
        if self.span:
            return min(self.first_entry_id(place) + self.span, self.last_entry_id + 1)
        return self.first_entry_id(following) if following < len(self.firsts) else self.last_entry_id + 1

    def first_entry_id(self, place: int) -> int:
        """Returns the first entry id of the run at a place."""
        return self.base + self.firsts[place]

    def offset(self, place: int) -> int:
        """Returns the byte offset in the file of the record of the run at a place."""
        return self.offsets[place] * UNIT

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def memory_bytes(self) -> int:
        """Returns the approximate memory including its cache slot, for budgets."""
        return 8 * len(self.firsts) + 800

    def summary(self, ledger_id: int, ledger_key: int) -> LedgerSummary:
        """Returns this ledger's line in the segment's footer."""
        marks = (MARK_FENCED if self.fenced else 0) | doubt_marks(self.doubt) | span_marks(self.span)
        return LedgerSummary(
            ledger_id,
            ledger_key,
            self.base,
            self.last_entry_id,
            self.lac,
            self.byte_length,
            len(self.firsts),
            marks,
        )

    @classmethod
    def from_footer(cls, summary: LedgerSummary, firsts: array[int], offsets: array[int]) -> LedgerIndex:
        """Creates the index from the footer of a sealed segment."""
        index = cls()
        index.base = summary.base
        index.firsts = firsts
        index.offsets = offsets
        index.last_entry_id = summary.last_entry_id
        index.lac = summary.lac
        index.byte_length = summary.byte_length
        index.fenced = bool(summary.marks & MARK_FENCED)
        index.doubt = doubt_of(summary.marks)
        index.span = span_of(summary.marks)
        return index
