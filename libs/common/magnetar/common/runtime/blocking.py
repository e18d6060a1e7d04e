"""Blocking work off the event loop, as an injected dependency."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class BlockingPool(Protocol):
    """Runs blocking calls off the event loop."""

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Starts `call`; the future completes on the loop with its result or exception."""
        ...

    def close(self) -> None:
        """Waits for running calls and accepts no more; idempotent."""
        ...


class ThreadPool:
    """A bounded pool of threads (the real one; the simulator runs calls at a moment of virtual time)."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=threads_max, thread_name_prefix=name)

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        self._executor.shutdown(wait=True)
