"""A managed ledger and a cursor in memory, as far as a subscription needs them."""

from __future__ import annotations

from magnetar.common.errors import LogFailed
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult


class FakeLedger:
    """One ledger (id 5) of numbered entries in runs; which of them are cached is up to the test."""

    name = "persistent://public/default/t"
    transactions = None

    def __init__(self, entries: int, *, cached_from: int = 0, run_entries: int = 4) -> None:
        self.entries = [b"%d" % number for number in range(entries)]
        self.cached_from = cached_from
        self.run_entries = run_entries
        self.unreadable: set[int] = set()
        self.failures = 0
        self.failure: Exception = LogFailed("the disk is having a bad day")
        self.reads = 0

    @property
    def last_position(self) -> Position:
        return Position(5, len(self.entries) - 1)

    @staticmethod
    def now_ms() -> int:
        return 0

    def next_position(self, after: Position) -> Position | None:
        entry_id = max(0, after.entry_id + 1)
        return Position(5, entry_id) if entry_id < len(self.entries) else None

    def _run(self, first: int, entries_max: int) -> Run:
        last = min(first + min(entries_max, self.run_entries), len(self.entries))
        return Run(self.entries[first:last], ledger_id=5, first_entry_id=first)

    def read_cached(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        return self._run(start.entry_id, entries_max) if start.entry_id >= self.cached_from else None

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise self.failure
        first, end = start.entry_id, min(start.entry_id + entries_max, len(self.entries))
        good = [entry_id for entry_id in range(first, end) if entry_id not in self.unreadable]
        bad = [Position(5, entry_id) for entry_id in range(first, end) if entry_id in self.unreadable]
        runs = [Run([self.entries[each]], ledger_id=5, first_entry_id=each) for each in good]
        return ReadResult(runs, Position(5, end), bad)


class FakeCursor:
    """Acknowledged entry ids as a plain set."""

    name = "s"
    has_holes = False

    def __init__(self) -> None:
        self.acked: set[int] = set()

    @property
    def mark_delete(self) -> Position:
        entry_id = -1
        while entry_id + 1 in self.acked:
            entry_id += 1
        return Position(5, entry_id)

    def ack(self, ledger_id: int, entry_id: int) -> bool:
        new = entry_id not in self.acked
        self.acked.add(entry_id)
        return new

    def unacked_ranges(self, run: Run) -> list[tuple[int, int]]:
        ids = range(run.first_entry_id, run.last_entry_id + 1)
        return [(each, each) for each in ids if each not in self.acked]
