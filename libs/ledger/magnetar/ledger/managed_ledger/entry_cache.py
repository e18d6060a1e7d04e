"""The tail cache: recent runs kept in memory for consumers that keep up.

One byte budget for the process; the oldest runs are evicted first. Overhead beside a run's bytes (objects,
list slots) is charged too, so small messages do not use many times the budget.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run

_RUN_OVERHEAD_BYTES = 400
_ENTRY_OVERHEAD_BYTES = 48
_COMPACT_AT = 64
_GONE = Run(entries=[])


@dataclass(slots=True, eq=False)
class ReadCounts:
    """Read counters: cache hits, and reads from storage after a miss. Counted once per run or read."""

    cached_entries: int = 0
    cached_bytes: int = 0
    stored_entries: int = 0
    stored_bytes: int = 0

    def cached(self, run: Run) -> None:
        """Counts a run read from the cache."""
        self.cached_entries += len(run.entries)
        self.cached_bytes += run.byte_length

    def stored(self, runs: list[Run]) -> None:
        """Counts a read from storage."""
        self.stored_entries += sum([len(run.entries) for run in runs])
        self.stored_bytes += sum([run.byte_length for run in runs])


class TopicCache:
    """The cached runs of one topic, in order; created at the topic's first cached run."""

    __slots__ = ("_budget", "_first", "_runs", "reads")

    def __init__(self, budget: EntryCache) -> None:
        self._budget = budget
        self._runs: list[Run] = []
        self._first = 0
        self.reads = ReadCounts()

    def __len__(self) -> int:
        return len(self._runs) - self._first

    def put(self, run: Run) -> None:
        """Adds a confirmed run, which follows every run added before."""
        self._runs.append(run)
        self._budget.inserted_entries += len(run.entries)
        self._budget.charge(self, _cost(run))

    def get(self, start: Position, entries_max: int, bytes_max: int) -> Run | None:
        """Returns a run that begins exactly at `start`, within the limits but at least one entry; None on a
        miss.
        """
        runs = self._runs
        at = len(runs) - 1
        # A tail reader needs the newest run; the search serves readers slightly behind.
        if at >= self._first and _start(runs[at]) > start:
            wanted: tuple[int, int] = start
            at = bisect_right(runs, wanted, lo=self._first, hi=at, key=_start) - 1
        if at < self._first:
            return None
        run = runs[at]
        if run.ledger_id != start.ledger_id or start.entry_id > run.last_entry_id:
            return None
        last = run.last_entry_id
        if start.entry_id == run.first_entry_id and run.byte_length <= bytes_max:
            if len(run.entries) <= entries_max:
                return run
            return run.slice(start.entry_id, start.entry_id + entries_max - 1)
        last = min(last, start.entry_id + max(entries_max, 1) - 1)
        size = 0
        for entry_id in range(start.entry_id, last + 1):
            size += len(run.entries[entry_id - run.first_entry_id])
            if size > bytes_max:
                last = max(entry_id - 1, start.entry_id)
                break
        return run.slice(start.entry_id, last)

    def count_cached(self, run: Run) -> None:
        """Counts a read of this run from the cache."""
        self.reads.cached(run)
        self._budget.reads.cached(run)

    def count_stored(self, runs: list[Run]) -> None:
        """Counts a read of these entries from storage."""
        self.reads.stored(runs)
        self._budget.reads.stored(runs)

    def drop_oldest(self) -> int:
        """Evicts the oldest run; returns its cost, 0 without any run."""
        if self._first >= len(self._runs):
            return 0
        run = self._runs[self._first]
        cost = _cost(run)
        self._budget.dropped_entries += len(run.entries)
        self._runs[self._first] = _GONE
        self._first += 1
        if self._first >= _COMPACT_AT and self._first * 2 >= len(self._runs):
            del self._runs[: self._first]
            self._first = 0
        return cost

    def clear(self) -> None:
        """Evicts every run, because the topic is unloaded."""
        while cost := self.drop_oldest():
            self._budget.release(cost)
        self._runs.clear()
        self._first = 0


class EntryCache:
    """The cache budget of all topics in the process."""

    __slots__ = (
        "_order",
        "_stale",
        "bytes",
        "bytes_max",
        "dropped_entries",
        "evictions",
        "inserted_entries",
        "reads",
    )

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._order: deque[TopicCache] = deque()
        self._stale = 0
        self.reads = ReadCounts()
        """Total of all topics, including unloaded ones."""
        self.inserted_entries = 0
        self.dropped_entries = 0
        """Number of entries inserted and no longer cached, for any reason."""
        self.evictions = 0
        """Number of runs evicted to make room."""

    def limit(self, bytes_max: int) -> None:
        """Changes the budget; evicts runs above it at once."""
        self.bytes_max = bytes_max
        self._evict()

    def topic(self) -> TopicCache:
        return TopicCache(self)

    def charge(self, topic: TopicCache, cost: int) -> None:
        """Charges a cached run and evicts older ones until the budget holds."""
        self._order.append(topic)
        self.bytes += cost
        self._evict()

    def _evict(self) -> None:
        while self.bytes > self.bytes_max and self._order:
            cost = self._order.popleft().drop_oldest()
            self.bytes -= cost
            self.evictions += cost > 0  # else the place of a topic that went

    def release(self, cost: int) -> None:
        """Releases the cost of a run removed other than by age; its queue slot is reclaimed later."""
        self.bytes -= cost
        self._stale += 1
        if self._stale > 1_000 and self._stale * 2 > len(self._order):
            self._rebuild()

    def _rebuild(self) -> None:
        """Removes queue slots of evicted runs, so that unloaded topics leave nothing behind."""
        places: dict[int, int] = {}
        kept: list[TopicCache] = []
        for topic in reversed(self._order):
            taken = places.get(id(topic), 0)
            if taken < len(topic):
                places[id(topic)] = taken + 1
                kept.append(topic)
        self._order = deque(reversed(kept))
        self._stale = 0


def _start(run: Run) -> tuple[int, int]:
    return run.ledger_id, run.first_entry_id


def _cost(run: Run) -> int:
    return run.byte_length + _RUN_OVERHEAD_BYTES + _ENTRY_OVERHEAD_BYTES * len(run.entries)
