"""So many bytes a second and no more, over time."""

from __future__ import annotations

import asyncio
from typing import Final

BURST_S: Final = 0.25
"""Time that unused tokens are kept."""


class Throttle:
    """Shared by whoever is to stay below one rate together. Times come from the running loop."""

    def __init__(self, bytes_per_s: int) -> None:
        """0 or less: no limit."""
        self._bytes_per_s = bytes_per_s
        self._paid_until = 0.0

    async def spend(self, count: int) -> None:
        """Count bytes, and wait until they were due. Those who come first wait less."""
        if self._bytes_per_s <= 0:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._paid_until = max(self._paid_until, now - BURST_S) + count / self._bytes_per_s
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)
