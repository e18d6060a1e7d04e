"""Work that waits for its turn, in virtual time: etcd, and the one core of each process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Queue:
    """One server that works in the order of arrival."""

    def __init__(self, behind: Callable[[], float] = lambda: 0.0) -> None:
        """`behind` returns the seconds of work that came in since it was last called, unasked."""
        self.busy_s = 0.0
        """Seconds of work so far."""
        self.longest_s = 0.0
        """The longest time that work waited and took."""
        self._loop = asyncio.get_running_loop()
        self._behind = behind
        self._free_at = self._looked_at = self._loop.time()

    def wait_s(self, work_s: float) -> float:
        """Adds work and returns the seconds until it is done."""
        now, more = self._loop.time(), self._behind()
        if more:  # it began when it came in, at the earliest after the last look
            self._free_at = max(self._free_at, self._looked_at) + more
        self._looked_at = now
        self.busy_s += more + work_s
        self._free_at = max(self._free_at, now) + work_s
        self.longest_s = max(self.longest_s, self._free_at - now)
        return self._free_at - now

    @property
    def backlog_s(self) -> float:
        """Seconds until new work would begin."""
        return max(0.0, self._free_at - self._loop.time())

    async def use(self, work_s: float) -> None:
        """Returns when this work is done."""
        await asyncio.sleep(self.wait_s(work_s))
