"""Writes a group and makes it durable without holding up the event loop.

Three calls: `start`, `submit`, `close`. One submission is outstanding at a time; its `done` is called on the
loop, never from inside `submit`. `kernel_syncer` is the one for Linux, `ThreadSyncer` for anything else,
libs/sim has its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.disk import Buffer, DiskFile
from prometheus_client import Histogram

INLINE_BYTES_MAX: Final = 4096
"""Size in bytes above which a group is never synced on the loop."""

INLINE_SYNC_S_MAX: Final = 400e-6
"""Average sync time in seconds below which syncs may run on the loop."""

_AVERAGE_WEIGHT: Final = 0.05
"""Weight of the newest sync in the moving average."""

SYNC_SECONDS: Final = Histogram(
    "magnetar_log_sync_seconds",
    "Time to write one group of the segment log and make it durable.",
    buckets=(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0),
    registry=REGISTRY,
)


class Syncer(Protocol):
    """Writes groups durably; see the module."""

    def start(self) -> None: ...

    def submit(
        self,
        file: DiskFile,
        buffers: Sequence[Buffer],
        offset: int,
        done: Callable[[OSError | None], None],
        *,
        sync: bool,
        busy: bool,
    ) -> None:
        """Writes `buffers` at `offset`, syncs if requested, then calls `done(error)` on the loop.

        `busy` means that the loop has other work meanwhile.
        """
        ...

    def close(self) -> None:
        """Waits for the submission in progress and accepts no more; idempotent."""
        ...


_Job = tuple[DiskFile, Sequence[Buffer], int, bool, Callable[[OSError | None], None]]


class InlineWhileQuick:
    """Decides whether to sync on the loop itself: a thread hand-over and back costs about as much as a fast
    disk's sync.

    A small group on an idle loop is synced inline while the moving average of syncs stays low; repeated slow
    syncs raise the average, and syncs move to the thread.
    """

    __slots__ = ("average_s",)

    def __init__(self) -> None:
        self.average_s = INLINE_SYNC_S_MAX

    def permits(self, buffers: Sequence[Buffer], *, busy: bool) -> bool:
        return not busy and self.average_s <= INLINE_SYNC_S_MAX and sum(map(len, buffers)) <= INLINE_BYTES_MAX

    def took(self, elapsed_s: float) -> None:
        """Records the duration of a write and its sync, wherever they ran."""
        self.average_s += (elapsed_s - self.average_s) * _AVERAGE_WEIGHT
        SYNC_SECONDS.observe(elapsed_s)


class ThreadSyncer:
    """Writes and syncs in a thread, without the interpreter lock; on the loop if that is cheaper."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._inline = InlineWhileQuick()

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="log-sync", daemon=True)
        self._thread.start()

    def submit(
        self,
        file: DiskFile,
        buffers: Sequence[Buffer],
        offset: int,
        done: Callable[[OSError | None], None],
        *,
        sync: bool,
        busy: bool,
    ) -> None:
        if self._inline.permits(buffers, busy=busy):
            self._loop.call_soon(done, self._write(file, buffers, offset, sync))
        else:
            self._jobs.put((file, buffers, offset, sync, done))

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            file, buffers, offset, sync, done = job
            error = self._write(file, buffers, offset, sync)
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:  # the loop was closed without waiting: there is no callback left to run
                return

    def _write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int, sync: bool) -> OSError | None:
        start = time.perf_counter()
        try:
            file.pwritev(buffers, offset)
            if sync:
                file.fdatasync()
        except OSError as error:
            return error
        self._inline.took(time.perf_counter() - start)
        return None
