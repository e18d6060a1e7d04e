"""Threads for calls to an object store that may never answer: the process ends without waiting for them.

The interpreter waits at exit for threads of `concurrent.futures`, even for blocked ones (for example on a
mounted directory whose server is down), so a broker would not stop. These threads only read, so they may be
cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Call = tuple[asyncio.Future[Any], Callable[[], Any]]


class StoreThreads:
    """Implements `BlockingPool` on one event loop; threads start as they are needed."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._at_work = 0
        self._changed = asyncio.Event()
        self._closed = False

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """See `BlockingPool.run`. Raises RuntimeError when it is closed."""
        if self._closed:
            raise RuntimeError(f"the threads {self._name} are closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((future, call))
        self._unfinished += 1
        if len(self._threads) < min(self._unfinished, self._threads_max):
            thread = threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True)
            self._threads.append(thread)
            self._at_work += 1
            thread.start()
        return future

    def stop(self) -> None:
        """Stops accepting calls; waiting ones are cancelled. Idempotent; does not block."""
        if self._closed:
            return
        self._closed = True
        while not self._calls.empty():
            found = self._calls.get()
            if found is not None:
                found[0].cancel()
        for _ in self._threads:
            self._calls.put(None)

    async def ended(self) -> None:
        """Waits until every thread has ended; call `stop` first."""
        while self._at_work:
            self._changed.clear()
            await self._changed.wait()

    def close(self) -> None:
        """See `BlockingPool.close`."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        # After the loop has ended, no caller waits for a result.
        with contextlib.suppress(RuntimeError):
            while (found := self._calls.get()) is not None:
                future, call = found
                result, error = None, None
                if not future.cancelled():
                    try:
                        result = call()
                    except BaseException as failed:
                        error = failed
                loop.call_soon_threadsafe(self._done, future, result, error)
                del found, future, call, result, error
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._at_work -= 1
        self._changed.set()

    def _done(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
