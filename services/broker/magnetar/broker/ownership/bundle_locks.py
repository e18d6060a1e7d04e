"""Locks that serialize the changes of a bundle."""

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
    """Locks of bundles with a running or waiting change."""

    def __init__(self) -> None:
        self._locks: dict[Bundle, _Lock] = {}

    def __contains__(self, bundle: Bundle) -> bool:
        """Whether a change of the bundle runs or waits."""
        return bundle in self._locks

    @asynccontextmanager
    async def alone(self, *bundles: Bundle) -> AsyncIterator[None]:
        """Excludes other changes of these bundles."""
        async with AsyncExitStack() as held:
            for bundle in sorted(set(bundles)):  # always in this order, to avoid a deadlock
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
