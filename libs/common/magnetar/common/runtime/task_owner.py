"""An owner of background tasks: it logs their failures and ends them with itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)


class TaskOwner:
    """Holds the tasks of one component. `name` appears in task names and in the log."""

    __slots__ = ("_closed", "_name", "_tasks")

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of running tasks."""
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Runs a coroutine in the background. An unhandled exception is logged once.

        Raises RuntimeError, without running the coroutine, if the owner is closed.
        """
        if self._closed:
            coro.close()
            raise RuntimeError(f"{self._name} is closed and starts no task {name!r}")
        task = asyncio.get_running_loop().create_task(coro, name=f"{self._name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancels every task, waits until all have ended and accepts no more. Idempotent.

        A task that closes its own owner is neither cancelled nor awaited.
        """
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("background task failed", task=task.get_name(), exc_info=error)
