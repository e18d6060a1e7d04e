"""A deterministic asyncio event loop: virtual time, no threads, no sockets, one seed.

Storage and replication code runs unchanged under `SimLoop`. Time stands still while callbacks are ready and
jumps to the next timer when none is. When nothing is ready or scheduled while the main future is pending, the
run ends with `SimDeadlock` instead of hanging. Every callback that runs is folded into a hash, so that two
runs of one seed can be proven equal.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

WALL_START_MS = 1_600_000_000_000
"""Default start of simulated wall clocks, ms since 1970 UTC: a moment in 2020."""


class SimDeadlock(AssertionError):
    """No callback is ready or scheduled, but the main future is pending."""


class SimTimeLimit(AssertionError):
    """The simulation exceeded its limit of virtual time before its main future completed."""


class SimCrash(BaseException):
    """The simulated process is dead. Not an Exception, so that no error handler catches it."""


class SimLoop(asyncio.BaseEventLoop):
    """An event loop whose only sources of events are its own callbacks and timers.

    `shuffle_ready` picks the next of several ready callbacks by the seed instead of first come, first served;
    asyncio promises the latter, so it is for code that must not depend on it. `errors` collects what
    callbacks raised; `run` raises the first of them. `traced=False` leaves callbacks out of the hash, which
    takes less time: for runs that are measured, not compared.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(
        self, seed: int = 0, *, shuffle_ready: bool = False, time_max_s: float = 86_400.0, traced: bool = True
    ) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.errors: list[BaseException] = []
        self._now = 0.0
        self._time_max_s = time_max_s
        self._shuffle_ready = shuffle_ready
        self._traced = traced
        self._hash = hashlib.blake2b(digest_size=16)
        self.set_exception_handler(self._collect_error)
        self.set_debug(False)  # asyncio's debug mode looks at the real time and at tracebacks

    def time(self) -> float:
        return self._now

    def trace(self, event: str) -> None:
        """Adds an event to the trace hash."""
        self._hash.update(f"{self._now:.9f} {event}\n".encode())

    def trace_hash(self) -> str:
        """Returns the hash of everything that has happened: equal for equal seeds on any machine."""
        return self._hash.hexdigest()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("no threads under simulation: pass a SimPool")

    def _write_to_self(self) -> None:
        """Does nothing: there is no selector to wake."""

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)
        if not self._ready:
            if not self._scheduled:
                raise SimDeadlock(f"nothing left to happen at virtual time {self._now:.6f} s")
            self._now = max(self._now, self._scheduled[0].when())
            if self._now > self._time_max_s:
                raise SimTimeLimit(f"virtual time passed {self._time_max_s} s")
        while self._scheduled and self._scheduled[0].when() <= self._now:
            self._ready.append(heapq.heappop(self._scheduled))
        for _ in range(len(self._ready)):
            if self._shuffle_ready and len(self._ready) > 1:
                self._ready.rotate(-self.rng.randrange(len(self._ready)))
            handle = self._ready.popleft()
            if not handle._cancelled:
                self._run_handle(handle)

    def _run_handle(self, handle: asyncio.Handle) -> None:
        if self._traced:
            self.trace(describe(handle))
        handle._run()

    def _collect_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not isinstance(error, SimCrash):
            self.errors.append(error)


def run(loop: SimLoop, main: Coroutine[Any, Any, T]) -> T:
    """Runs `main` to its end on `loop`, cancels remaining tasks, closes the loop.

    Raises the error of `main`, otherwise the first error of any callback.
    """
    try:
        result = loop.run_until_complete(main)
    except (SimDeadlock, SimTimeLimit) as stuck:
        if loop.errors:  # why nothing happens any more
            raise loop.errors[0] from stuck
        raise
    finally:
        try:
            _end_tasks(loop)
        finally:
            loop.close()
    if loop.errors:
        raise loop.errors[0]
    return result


def run_inside(loop: SimLoop, main: Coroutine[Any, Any, T]) -> T:
    """Runs like `run`, from a callback of another simulated loop, which is suspended meanwhile: to test what
    would happen if that world ended now.
    """
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return run(loop, main)
    finally:
        asyncio._set_running_loop(outer)


def _end_tasks(loop: SimLoop) -> None:
    # Cleaning up takes time as well, and must not hide why the run is over.
    loop._time_max_s += loop.time()
    tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in sorted(tasks, key=lambda task: task.get_name()):
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def describe(handle: asyncio.Handle) -> str:
    """Describes the callback of a handle, for the trace."""
    callback: Any = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '?')}"
    while hasattr(callback, "func"):
        callback = callback.func
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


class SimClock:
    """Wall and monotonic time of a `SimLoop`. `wall_offset_ms` may be changed at any time."""

    def __init__(self, loop: SimLoop, wall_offset_ms: int = WALL_START_MS) -> None:
        self._loop = loop
        self.wall_offset_ms = wall_offset_ms

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class SimPool:
    """A `BlockingPool` whose calls run at one moment of virtual time, after a seeded delay."""

    def __init__(self, loop: SimLoop, delay_max_s: float = 0.002) -> None:
        self._loop = loop
        self._delay_max_s = delay_max_s

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()

        def happen() -> None:
            if future.cancelled():
                return
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._loop.call_later(self._loop.rng.uniform(0, self._delay_max_s), happen)
        return future

    def close(self) -> None:
        """Does nothing: there is no work outside the loop."""
