"""Processes on one simulated loop, each of which can die or be suspended between any two steps.

Everything a process starts (tasks, timers, callbacks), and everything that follows, runs in its context. The
loop checks the context before each step: steps of a dead process never run, not even its `finally` blocks;
steps of a suspended one (SIGSTOP, a long garbage collection) wait and then run at once. Steps without a
process belong to the world: the network, the metadata store, the test.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from magnetar.sim.loop import SimDeadlock, SimLoop, SimTimeLimit, describe

T = TypeVar("T")

_PROCESS: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar("process", default=None)

WORLD: Final = contextvars.Context()
"""The context of steps without a process."""

CLOSE_ATTEMPTS: Final = 10
"""Maximum attempts to close a coroutine that awaits while being closed."""


class SimProcess:
    """One run of a process. A restart is a new one under the same name."""

    def __init__(self, loop: WorldLoop, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self._loop = loop
        self._context = contextvars.Context()
        self._context.run(_PROCESS.set, self)
        self._held: list[asyncio.Handle] = []
        self._steps_left = -1
        self._on_death: list[Callable[[], None]] = []
        self._on_end_of_pause: list[Callable[[], None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine as part of this process. It never ends once the process is dead."""
        return self._context.copy().run(self._loop.create_task, coroutine)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a function now, as part of this process; its callbacks belong to the process."""
        return self._context.copy().run(function, *args)

    def post(self, callback: Callable[..., None], *args: Any) -> None:
        """Delivers an event to the process: now, after its suspension, or never; in order."""
        if self.alive:
            self._loop.call_soon(callback, *args, context=self._context)

    def on_death(self, callback: Callable[[], None]) -> None:
        """Registers a callback for the moment of death, run in the world."""
        self._on_death.append(callback)

    def kill(self) -> None:
        """Kills the process: no further step; idempotent."""
        if not self.alive:
            return
        self.alive = False
        self._loop.trace(f"{self.name} dies")
        self._loop.bury(self._held)
        self._held = []
        for callback in self._on_death:
            # A process that kills itself is still in its own context, where no timer would run any more.
            WORLD.copy().run(callback)

    def kill_after(self, steps: int) -> None:
        """Kills the process after a number of its further steps."""
        self._steps_left = steps

    def spare(self) -> None:
        """Cancels a scheduled death; idempotent."""
        self._steps_left = -1

    def pause(self, duration_s: float, on_end: Callable[[], None] | None = None) -> None:
        """Suspends the process. Ignored for a dead or suspended one."""
        if self.paused or not self.alive:
            return
        self.paused = True
        self._loop.trace(f"{self.name} stands still")
        self._loop.call_later(duration_s, self._resume, on_end, context=WORLD)

    def _resume(self, on_end: Callable[[], None] | None) -> None:
        self.paused = False
        held, self._held = self._held, []
        self._loop._ready.extendleft(reversed(held))  # before what has come at this very moment
        if on_end is not None and self.alive:
            on_end()

    def admits(self, handle: asyncio.Handle) -> bool:
        """Returns whether a step of this process may run now."""
        if not self.alive:
            self._loop.bury([handle])
            return False
        if self.paused:
            self._held.append(handle)
            return False
        if self._steps_left >= 0:
            self._steps_left -= 1
            if self._steps_left < 0:
                self._loop.bury([handle])
                self.kill()
                return False
        return True


class WorldLoop(SimLoop):
    """A simulated loop with several processes on it."""

    def __init__(self, seed: int = 0, *, time_max_s: float = 86_400.0) -> None:
        super().__init__(seed, time_max_s=time_max_s)
        self.steps = 0
        # Pending steps of dead processes are kept, so that none of their objects is destroyed before the run
        # ends.
        self._buried: list[asyncio.Handle] = []

    def bury(self, handles: list[asyncio.Handle]) -> None:
        """Keeps handles that will never run."""
        self._buried += handles

    def _run_handle(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is None:
            self.trace(describe(handle))
        elif process.admits(handle):
            self.trace(f"{process.name} {describe(handle)}")
        else:
            return
        self.steps += 1
        handle._run()


def current_process() -> SimProcess | None:
    """Returns the process whose step is running; None outside of any process."""
    return _PROCESS.get()


def run_world(loop: WorldLoop, main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` in the world to its end; then drops everything else and closes the loop.

    Raises the first error of any callback, otherwise the error of `main`. Garbage collection waits until the
    end, so that finalizers do not depend on earlier activity in this interpreter.
    """
    collecting = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        try:
            result = loop.run_until_complete(main)
        except (SimDeadlock, SimTimeLimit, AssertionError) as failure:
            if loop.errors:  # why nothing happens any more, or what went wrong before
                raise loop.errors[0] from failure
            raise
        if loop.errors:
            raise loop.errors[0]
        return result
    finally:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(loop)  # for tasks that are started during shutdown
        try:
            _drop_tasks(loop)
        finally:
            asyncio._set_running_loop(outer)
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        gc.unfreeze()
        if collecting:
            gc.enable()


def _drop_tasks(loop: WorldLoop) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from coroutines that are started during shutdown
        dropped: set[asyncio.Task[Any]] = set()
        while tasks := asyncio.all_tasks(loop) - dropped:
            dropped |= tasks
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())


def _close(coroutine: Any) -> None:
    for _ in range(CLOSE_ATTEMPTS):
        try:
            coroutine.close()
            return
        except BaseException:  # errors during shutdown have no receiver
            continue
