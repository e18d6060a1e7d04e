"""Order of repairs: due under-replicated ledgers, chosen at random so that workers on several bookies seldom
collide.
"""

from __future__ import annotations

import heapq
import random
from typing import Final

REST_MAX_S: Final = 600.0
"""Longest delay in seconds between attempts at a ledger that keeps failing."""


class RepairQueue:
    """Ledger ids and their due times, in the loop's time. Each id added by `add` stays until `remove`."""

    def __init__(self, rng: random.Random, retry_after_s: float) -> None:
        self._rng = rng
        self._retry_after_s = retry_after_s
        self._due: dict[int, float] = {}
        """The due time of each waiting ledger."""
        self._failures: dict[int, int] = {}
        self._taken: dict[int, bool] = {}
        """Ledgers being repaired, and whether each changed meanwhile."""
        self._heap: list[tuple[float, float, int]] = []

    def __len__(self) -> int:
        return len(self._due) + len(self._taken)

    def add(self, ledger_id: int, now: float) -> None:
        """Adds a marked ledger, or one whose mark changed, as due now."""
        if ledger_id in self._taken:
            self._taken[ledger_id] = True
        else:
            self._failures.pop(ledger_id, None)
            self._put(ledger_id, now)

    def remove(self, ledger_id: int) -> None:
        """Removes a ledger whose mark is gone; a repair in progress continues."""
        self._due.pop(ledger_id, None)
        self._failures.pop(ledger_id, None)
        if ledger_id in self._taken:
            self._taken[ledger_id] = False

    def take(self, now: float) -> int | None:
        """Returns a due ledger, which is then taken until `done` or `rest`; None if none is due."""
        while self._heap and self._heap[0][0] <= now:
            due, _, ledger_id = heapq.heappop(self._heap)
            if self._due.get(ledger_id) == due:
                del self._due[ledger_id]
                self._taken[ledger_id] = False
                return ledger_id
        return None

    def done(self, ledger_id: int, now: float) -> None:
        """Records that the ledger needs no further repair, as far as its worker can tell."""
        self._failures.pop(ledger_id, None)
        if self._taken.pop(ledger_id, False):
            self._put(ledger_id, now)

    def rest(self, ledger_id: int, now: float, after_s: float | None = None) -> None:
        """Schedules another attempt after `after_s` seconds, or longer after each failure."""
        if self._taken.pop(ledger_id, False):
            self._put(ledger_id, now)
            return
        if after_s is None:
            failures = self._failures.get(ledger_id, 0)
            self._failures[ledger_id] = failures + 1
            after_s = min(self._retry_after_s * 2 ** min(failures, 20), REST_MAX_S)
            after_s *= self._rng.uniform(0.75, 1.25)
        self._put(ledger_id, now + after_s)

    def wake_all(self, now: float) -> None:
        """Makes every ledger due, after a change that may help any of them."""
        self._failures.clear()
        self._heap.clear()
        for ledger_id in self._due:
            self._put(ledger_id, now)

    def next_due(self) -> float | None:
        """Returns the next due time; None if no ledger waits."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _put(self, ledger_id: int, due: float) -> None:
        self._due[ledger_id] = due
        heapq.heappush(self._heap, (due, self._rng.random(), ledger_id))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(d, self._rng.random(), i) for i, d in self._due.items()]
            heapq.heapify(self._heap)
