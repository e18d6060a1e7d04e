"""A bound on expensive checks: a few at once, a queue, and a refusal beyond it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from magnetar.common.errors import ServiceNotReady

AT_ONCE_MAX: Final = 4
WAITING_MAX: Final = 100


class Slots:
    """Admits AT_ONCE_MAX checks at once and lets WAITING_MAX wait. Belongs to one event loop."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(AT_ONCE_MAX)
        self._taken = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot. Raises ServiceNotReady when too many wait for one."""
        if self._taken >= AT_ONCE_MAX + WAITING_MAX:
            raise ServiceNotReady("too many credentials are being checked; try again later")
        self._taken += 1
        try:
            async with self._semaphore:
                yield
        finally:
            self._taken -= 1
