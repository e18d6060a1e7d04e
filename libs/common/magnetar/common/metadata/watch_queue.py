"""One watcher's queue between a store's in-process event source and the code that iterates."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from magnetar.common.errors import WatchLost
from magnetar.common.metadata.store import WatchEvent

WATCH_QUEUE_EVENTS_MAX: Final = 10_000


class WatchQueue:
    """A `Watch` that is fed by `push` and ended by `lose` or `close`, all on the event loop.

    Events up to revision `after` are skipped. Holds at most `events_max` events; one more ends the watch with
    WatchLost and drops the queued ones, since the watcher must list again anyway. `on_close` is called once
    at its end.
    """

    __slots__ = ("_after", "_closed", "_events", "_events_max", "_lost", "_on_close", "_waiter", "prefix")

    def __init__(
        self,
        prefix: str,
        on_close: Callable[[WatchQueue], None],
        events_max: int = WATCH_QUEUE_EVENTS_MAX,
        after: int = 0,
    ) -> None:
        self.prefix = prefix
        self._after = after
        self._events: deque[WatchEvent] = deque()
        self._events_max = events_max
        self._on_close = on_close
        self._waiter: asyncio.Future[None] | None = None
        self._lost: str | None = None
        self._closed = False

    def push(self, event: WatchEvent) -> None:
        """Queue an event under the prefix; others are ignored."""
        if self._closed or event.version <= self._after or not event.key.startswith(self.prefix):
            return
        if len(self._events) >= self._events_max:
            self.lose(f"more than {self._events_max} changes were waiting")
            return
        self._events.append(event)
        self._wake()

    def lose(self, reason: str) -> None:
        """End the watch with WatchLost."""
        if not self._closed:
            self._events.clear()
            self._lost = reason
            self.close()

    def close(self) -> None:
        """End the iteration after the queued events; idempotent."""
        if not self._closed:
            self._closed = True
            self._wake()
            self._on_close(self)

    def __aiter__(self) -> WatchQueue:
        return self

    async def __anext__(self) -> WatchEvent:
        while True:
            if self._events:
                return self._events.popleft()
            if self._lost is not None:
                raise WatchLost(f"the watch of {self.prefix!r} ended: {self._lost}; list the prefix again")
            if self._closed:
                raise StopAsyncIteration
            assert self._waiter is None, "a watch is iterated by one task at a time"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def aclose(self) -> None:
        self._events.clear()
        self.close()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
