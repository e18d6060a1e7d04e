"""Consecutive entries of an offloaded ledger in memory, as runs that are passed to readers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from magnetar.ledger.ledger_store import Run

_GROUP_BYTES: Final = 1_000
_RUN_BYTES: Final = 400
_ENTRY_BYTES: Final = 56
"""Bytes of memory of an entry in addition to its own bytes."""


@dataclass(slots=True)
class EntryGroup:
    """The complete, consecutive entries of a row group; at least one."""

    runs: list[Run]
    cost: int = field(init=False)

    def __post_init__(self) -> None:
        entries = sum(len(run.entries) for run in self.runs)
        size = sum(run.byte_length for run in self.runs)
        self.cost = _GROUP_BYTES + size + _RUN_BYTES * len(self.runs) + _ENTRY_BYTES * entries

    @property
    def first_entry_id(self) -> int:
        return self.runs[0].first_entry_id

    @property
    def last_entry_id(self) -> int:
        return self.runs[-1].last_entry_id

    def take(self, first: int, last: int, bytes_max: int, *, at_least_one: bool) -> list[Run]:
        """Returns the entries from `first`, which must be in the group, to `last`, as far as they are in it
        and fit; bytes are shared.
        """
        taken: list[Run] = []
        at = bisect_right(self.runs, first, key=lambda run: run.first_entry_id) - 1
        while at < len(self.runs) and first <= last:
            run = self.runs[at]
            stop = min(last, run.last_entry_id)
            if stop - first + 1 < len(run.entries) or run.byte_length > bytes_max:
                part = _fitting(run, first, stop, bytes_max, at_least_one=at_least_one and not taken)
                if part is None:
                    break
                run, cut = part, part.last_entry_id < stop
            else:
                cut = False
            taken.append(run)
            bytes_max -= run.byte_length
            first = run.last_entry_id + 1
            at += 1
            if cut:
                break
        return taken

    def first_not_before(self, publish_time_ms: int) -> int | None:
        """Returns the first entry published (broker time) at or after this time; None when all are older."""
        for run in self.runs:
            if run.publish_time_ms >= publish_time_ms:
                return run.first_entry_id
        return None


def _fitting(run: Run, first: int, last: int, bytes_max: int, *, at_least_one: bool) -> Run | None:
    """Returns entries `first` to `last` of a run as far as they fit; None when none does."""
    start, stop = first - run.first_entry_id, last - run.first_entry_id + 1
    count = 0
    for entry in run.entries[start:stop]:
        bytes_max -= len(entry)
        if bytes_max < 0 and not (at_least_one and not count):
            break
        count += 1
        if bytes_max < 0:
            break
    return run.slice(first, first + count - 1) if count else None
