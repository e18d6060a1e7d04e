"""The pace of a compaction run: bytes a second, and short turns on the event loop."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.work_slices import Slices

_SLEEP_MIN_S: Final = 0.005


class RunPace:
    """Delays a run so that publishing goes first; `bytes_per_second` 0 means no limit."""

    __slots__ = ("_bytes_per_second", "_clock", "_due", "_slices")

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._due = clock.monotonic()
        self._slices = Slices(clock.monotonic, 1)

    async def spend(self, byte_count: int) -> None:
        """Counts bytes that were read or written; waits until they are due."""
        if not self._bytes_per_second:
            return
        now = self._clock.monotonic()
        self._due = max(self._due, now) + byte_count / self._bytes_per_second
        if self._due - now >= _SLEEP_MIN_S:
            await asyncio.sleep(self._due - now)

    async def turn(self) -> None:
        """Lets other tasks run; the next slice begins."""
        await asyncio.sleep(0)
        self._slices.begin()

    async def step(self) -> None:
        """Counts a step of computation; lets other tasks run when a slice is over."""
        if self._slices.over():
            await asyncio.sleep(0)

    def over(self) -> bool:
        """Counts a step; returns True if the caller must let other tasks run (`asyncio.sleep(0)`)."""
        return self._slices.over()
