"""Where a ledger's runs are in one segment: two arrays of 32-bit numbers and a binary search.

A run costs eight bytes however many entries it holds: its first entry id minus the ledger's base in this
segment, and its offset in units of 16 bytes. How many entries it holds stands in the record itself.

Runs of one writer come in order. On a bookie they may have gaps (striping), come in any order (copies made by
auto-recovery) and even overlap (a damaged record and its repair); then `candidates` names more than one.
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
    """The runs of one ledger in one segment, by first entry id, and what a footer says of them."""

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
        """The last limbo mark, packed (`file_codec_v1.pack_doubt`); 0: there was none."""
        self.span = 0
        """No run holds more entries than this. 0: runs certainly do not overlap."""
        self.incomplete = False
        """Made again from a damaged segment, without all of its runs: what is not in it may be lost."""
        self._longest = 1

    def add_run(self, first_entry_id: int, entry_count: int, offset: int, byte_length: int, lac: int) -> None:
        """Enter a durable run whose record starts at byte `offset` of the file.

        A copy of a run (of a rewritten tail, of compaction) takes its place: they are equal, and so a damaged
        one is not the only one known.
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
        """Whether the last mark says that the ledger is in limbo."""
        return is_limbo(self.doubt)

    def find(self, entry_id: int) -> int:
        """The place of the first run to look at for an entry, the only one unless runs overlap, or NO_RUN."""
        if not self.firsts or not self.base <= entry_id <= self.last_entry_id:
            return NO_RUN
        return bisect_right(self.firsts, entry_id - self.base) - 1

    def candidates(self, entry_id: int) -> Iterator[int]:
        """Places of all runs that may hold an entry, the latest beginning first."""
        place = self.find(entry_id)
        if place == NO_RUN:
            return
        yield place
        oldest = entry_id - self.base - self.span
        while self.span and place and self.firsts[place - 1] > oldest:
            place -= 1
            yield place

    def next_after(self, entry_id: int) -> int | None:
        """First entry id of the first run that begins after an entry."""
        place = bisect_right(self.firsts, entry_id - self.base) if entry_id >= self.base else 0
        return self.first_entry_id(place) if place < len(self.firsts) else None

    def end_after(self, place: int) -> int:
        """A bound on where the run at a place ends: the id after its last entry is not above this."""
        following = bisect_right(self.firsts, self.firsts[place])
        if self.span:
            return min(self.first_entry_id(place) + self.span, self.last_entry_id + 1)
        return self.first_entry_id(following) if following < len(self.firsts) else self.last_entry_id + 1

    def first_entry_id(self, place: int) -> int:
        """First entry id of the run at a place."""
        return self.base + self.firsts[place]

    def offset(self, place: int) -> int:
        """Where the record of the run at a place starts in the file, bytes."""
        return self.offsets[place] * UNIT

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def memory_bytes(self) -> int:
        """About how much memory this takes with its place in a cache, for budgets."""
        return 8 * len(self.firsts) + 800

    def summary(self, ledger_id: int, ledger_key: int) -> LedgerSummary:
        """This ledger's line in the segment's footer."""
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
        """The index as the footer of a sealed segment holds it."""
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
