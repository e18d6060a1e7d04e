"""The deadlines of a coordinator's open transactions, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from magnetar.common.runtime.clock import Clock

_DUE_MAX: Final = 200
"""Transactions handled in one turn of the event loop."""

_STALE_MIN: Final = 1_000


class Deadlines:
    """Calls `on_due` with a transaction's number at its deadline, unless it is not `is_open` by then.

    Deadlines are monotonic times in seconds, so a jump of the wall clock ends no transaction.
    """

    __slots__ = ("_clock", "_heap", "_is_open", "_on_due", "_stale", "_timer", "_timer_at")

    def __init__(self, clock: Clock, is_open: Callable[[int], bool], on_due: Callable[[int], None]) -> None:
        self._clock = clock
        self._is_open = is_open
        self._on_due = on_due
        self._heap: list[tuple[float, int]] = []
        self._stale = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """Returns the number of kept deadlines; up to half of them may be of transactions that are over."""
        return len(self._heap)

    def add(self, number: int, at: float) -> None:
        """Adds a deadline."""
        heappush(self._heap, (at, number))
        self._set_timer()

    def add_all(self, deadlines: Iterable[tuple[float, int]]) -> None:
        """Adds many deadlines, as (time, number)."""
        self._heap += deadlines
        heapify(self._heap)
        self._set_timer()

    def drop_one(self) -> None:
        """Notes that a transaction is not open any more. Its deadline goes when many are to go."""
        self._stale += 1
        if self._stale > max(_STALE_MIN, len(self._heap) // 2):
            self._heap = [each for each in self._heap if self._is_open(each[1])]
            heapify(self._heap)
            self._stale = 0

    def stop(self) -> None:
        """Drops everything."""
        self._heap = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        wait_s = max(0.0, at - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for _ in range(_DUE_MAX):
            if not self._heap or self._heap[0][0] > now:
                break
            _, number = heappop(self._heap)
            if self._is_open(number):
                self._on_due(number)
            else:
                self._stale = max(0, self._stale - 1)
        self._set_timer()
