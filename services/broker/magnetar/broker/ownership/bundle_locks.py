"""One change of a bundle at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from magnetar.common.cluster.bundle_owners import Bundle


@dataclass(slots=True)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class BundleLocks:
    """Locks of the bundles that somebody changes, or waits to change."""

    def __init__(self) -> None:
        self._locks: dict[Bundle, _Lock] = {}

    def __contains__(self, bundle: Bundle) -> bool:
        """Whether somebody changes it, or waits for that."""
        return bundle in self._locks

    @asynccontextmanager
    async def alone(self, *bundles: Bundle) -> AsyncIterator[None]:
        """Nobody else changes any of these meanwhile."""
        async with AsyncExitStack() as held:
            for bundle in sorted(set(bundles)):  # always in this order, so that no two wait for each other
                await held.enter_async_context(self._alone(bundle))
            yield

    @asynccontextmanager
    async def _alone(self, bundle: Bundle) -> AsyncIterator[None]:
        entry = self._locks.setdefault(bundle, _Lock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._locks[bundle]
