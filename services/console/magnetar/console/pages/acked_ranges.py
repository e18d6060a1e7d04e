"""Acknowledged entries above a mark-delete position, as a strip of cells. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from magnetar.console.pages.topic_facts import Ledger

CELLS: Final = 80
"""Cells of a strip."""

RANGES_MAX: Final = 20_000
"""Ranges read; the admin API tells fewer."""

_RANGE: Final = re.compile(r"\((\d{1,19}):(-?\d{1,19})\.\.(\d{1,19}):(\d{1,19})\]")
_POSITION: Final = re.compile(r"(\d{1,19}):(-?\d{1,19})")


@dataclass(frozen=True, slots=True)
class Cell:
    """Consecutive entries of a backlog."""

    first: str
    """The first entry, as ledger:entry."""
    entries: int
    acked: int
    """Entries of these that are acknowledged."""

    @property
    def level(self) -> str:
        """How much of it is acknowledged: none, some or all."""
        return "none" if not self.acked else "all" if self.acked >= self.entries else "some"


@dataclass(frozen=True, slots=True)
class Strip:
    """The entries from a mark-delete position to the end of a topic."""

    cells: list[Cell]
    entries: int
    acked: int
    ranges: int


def strip_of(ledgers: list[Ledger], mark: str, ranges: str) -> Strip:
    """Return the strip of a cursor with these positions, as internal statistics have them; empty for an
    unknown position and at the end of the topic.
    """
    found = _POSITION.fullmatch(mark)
    if found is None:
        return Strip([], 0, 0, 0)
    starts: dict[int, tuple[int, int]] = {}
    at = 0
    for each in ledgers:
        starts[each.ledger_id] = at, each.entries
        at += each.entries
    begin, end = _offset(starts, at, int(found[1]), int(found[2]) + 1), at
    entries = end - begin
    if entries <= 0:
        return Strip([], 0, 0, 0)
    acked = [
        (max(begin, first), min(end, last)) for first, last in _spans(starts, at, ranges) if last > begin
    ]
    count = min(CELLS, entries)
    edges = [begin + entries * number // count for number in range(count + 1)]
    sums = _sums(edges, sorted(acked))
    cells = [
        Cell(_position(ledgers, starts, low), high - low, covered)
        for (low, high), covered in zip(pairwise(edges), sums, strict=True)
    ]
    return Strip(cells, entries, sum(sums), len(acked))


def _spans(starts: dict[int, tuple[int, int]], end: int, ranges: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges as offsets from the first entry of the topic, the last one excluded."""
    for number, each in enumerate(_RANGE.finditer(ranges)):
        if number >= RANGES_MAX:
            return
        first = _offset(starts, end, int(each[1]), int(each[2]) + 1)
        last = _offset(starts, end, int(each[3]), int(each[4]) + 1)
        if last > first:
            yield first, last


def _offset(starts: dict[int, tuple[int, int]], end: int, ledger_id: int, entry_id: int) -> int:
    """Return how many entries are before a position; of a ledger that is not there, those of earlier ones."""
    found = starts.get(ledger_id)
    if found is None:
        return min((start for ledger, (start, _) in starts.items() if ledger > ledger_id), default=end)
    start, entries = found
    return start + min(max(entry_id, 0), entries)


def _sums(edges: list[int], acked: list[tuple[int, int]]) -> list[int]:
    """Return how much of each cell the ranges cover, which are in order and do not overlap."""
    sums, at = [], 0
    for low, high in pairwise(edges):
        while at < len(acked) and acked[at][1] <= low:
            at += 1
        covered, after = 0, at
        while after < len(acked) and acked[after][0] < high:
            covered += min(high, acked[after][1]) - max(low, acked[after][0])
            after += 1
        sums.append(covered)
    return sums


def _position(ledgers: list[Ledger], starts: dict[int, tuple[int, int]], offset: int) -> str:
    for each in reversed(ledgers):
        start, entries = starts[each.ledger_id]
        if start <= offset and entries:
            return f"{each.ledger_id}:{offset - start}"
    return f"{ledgers[0].ledger_id}:0"
