"""Which under-replicated ledger comes next: those that are due, in random order, so that workers on several
bookies seldom meet."""

from __future__ import annotations

import heapq
import random
from typing import Final

REST_MAX_S: Final = 600.0
"""Longest rest of a ledger that fails again and again."""


class RepairQueue:
    """Ledger ids and when to try each; times are the loop's. Takes what `add` gave until `remove`."""

    def __init__(self, rng: random.Random, retry_after_s: float) -> None:
        self._rng = rng
        self._retry_after_s = retry_after_s
        self._due: dict[int, float] = {}
        """When each waiting ledger is due."""
        self._failures: dict[int, int] = {}
        self._taken: dict[int, bool] = {}
        """Ledgers being repaired, and whether they changed meanwhile."""
        self._heap: list[tuple[float, float, int]] = []

    def __len__(self) -> int:
        return len(self._due) + len(self._taken)

    def add(self, ledger_id: int, now: float) -> None:
        """A ledger is marked, or its mark changed: try it now."""
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
        """A ledger to work on, until `done` or `rest`; None: none is due."""
        while self._heap and self._heap[0][0] <= now:
            due, _, ledger_id = heapq.heappop(self._heap)
            if self._due.get(ledger_id) == due:
                del self._due[ledger_id]
                self._taken[ledger_id] = False
                return ledger_id
        return None

    def done(self, ledger_id: int, now: float) -> None:
        """The ledger needs nothing any more, as far as its worker knows."""
        self._failures.pop(ledger_id, None)
        if self._taken.pop(ledger_id, False):
            self._put(ledger_id, now)

    def rest(self, ledger_id: int, now: float, after_s: float | None = None) -> None:
        """The ledger needs something still: try again after `after_s`, or after longer with each failure."""
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
        """Something changed that may help any of them."""
        self._failures.clear()
        self._heap.clear()
        for ledger_id in self._due:
            self._put(ledger_id, now)

    def next_due(self) -> float | None:
        """When the next one is due; None: nothing waits."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _put(self, ledger_id: int, due: float) -> None:
        self._due[ledger_id] = due
        heapq.heappush(self._heap, (due, self._rng.random(), ledger_id))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = [(d, self._rng.random(), i) for i, d in self._due.items()]
            heapq.heapify(self._heap)
