"""A limit on bytes per second."""

from __future__ import annotations

import asyncio
from typing import Final

BURST_S: Final = 0.25
"""Seconds for which unused capacity accumulates."""


class Throttle:
    """A rate limit shared by several tasks. Times come from the running loop."""

    def __init__(self, bytes_per_s: int) -> None:
        """Creates a limit; 0 or less means unlimited."""
        self._bytes_per_s = bytes_per_s
        self._paid_until = 0.0

    async def spend(self, count: int) -> None:
        """Counts bytes and waits until they are within the limit, in order of arrival."""
        if self._bytes_per_s <= 0:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._paid_until = max(self._paid_until, now - BURST_S) + count / self._bytes_per_s
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)
