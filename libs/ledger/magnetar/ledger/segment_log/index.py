"""Where a ledger's runs are in one segment: two arrays of 32-bit numbers and a binary search.

A run costs eight bytes however many entries it holds: its first entry id minus the ledger's base in this
segment, and its offset in units of 16 bytes. How many entries it holds stands in the record itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from magnetar.ledger.segment_log.codec_v1 import UNIT
from magnetar.ledger.segment_log.file_codec_v1 import MARK_FENCED, MARK_LIMBO, LedgerSummary

NO_RUN: Final = -1


class LedgerIndex:
    """The runs of one ledger in one segment, by first entry id, and what a footer says of them."""

    __slots__ = ("base", "byte_length", "fenced", "firsts", "lac", "last_entry_id", "limbo", "offsets")

    def __init__(self) -> None:
        self.base = 0
        self.firsts = array("I")
        self.offsets = array("I")
        self.last_entry_id = -1
        self.lac = -1
        self.byte_length = 0
        self.fenced = False
        self.limbo = False

    def add_run(self, first_entry_id: int, entry_count: int, offset: int, byte_length: int, lac: int) -> None:
        """Enter a durable run whose record starts at byte `offset` of the file.

        Runs come in order but for copies (of a rewritten tail, of compaction), which are equal: the later
        one is entered, so that a damaged copy is not the only one known.
        """
        if not self.firsts:
            self.base = first_entry_id
        if first_entry_id < self.base:
            shift = self.base - first_entry_id
            self.firsts = array("I", [first + shift for first in self.firsts])
            self.base = first_entry_id
        relative = first_entry_id - self.base
        unit_offset = offset // UNIT
        if not self.firsts or relative > self.firsts[-1]:
            self.firsts.append(relative)
            self.offsets.append(unit_offset)
        else:
            place = bisect_left(self.firsts, relative)
            if self.firsts[place] == relative:
                self.offsets[place] = unit_offset
                return
            self.firsts.insert(place, relative)
            self.offsets.insert(place, unit_offset)
        self.byte_length += byte_length
        self.last_entry_id = max(self.last_entry_id, first_entry_id + entry_count - 1)
        self.lac = max(self.lac, lac)

    def find(self, entry_id: int) -> int:
        """The place of the only run that may hold an entry, or NO_RUN."""
        if not self.firsts or not self.base <= entry_id <= self.last_entry_id:
            return NO_RUN
        return bisect_right(self.firsts, entry_id - self.base) - 1

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
        """Bytes of the two arrays, for budgets."""
        return 8 * len(self.firsts) + 200

    def summary(self, ledger_id: int, ledger_key: int) -> LedgerSummary:
        """This ledger's line in the segment's footer."""
        marks = (MARK_FENCED if self.fenced else 0) | (MARK_LIMBO if self.limbo else 0)
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
        index.limbo = bool(summary.marks & MARK_LIMBO)
        return index
