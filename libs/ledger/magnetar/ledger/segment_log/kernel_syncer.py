"""A syncer without a thread: Linux syncs in the background and wakes the event loop.

A thread that finished a sync needs the interpreter lock to report it, and a busy loop releases that only now
and then. The kernel's asynchronous I/O (io_submit of a data sync, completion on an eventfd) needs no lock.
docs/decisions/log-sync.md has the figures.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.disk import Buffer, DiskFile
from magnetar.common.runtime.posix_disk import PosixFile
from magnetar.ledger.segment_log.syncer import InlineWhileQuick, Syncer, ThreadSyncer

if TYPE_CHECKING:
    from caio.linux_aio import Context

log = get_logger(__name__)

_REQUESTS_MAX: Final = 4
"""Slots for completions; one sync is in flight at a time."""

WRITE_BYTES_MAX: Final = 256 * 1024
"""Size in bytes above which a thread writes and syncs a group: copying it would block the loop for
milliseconds.
"""


class KernelSyncer:
    """Writes a group into the page cache on the loop, and lets the kernel sync it in the background.

    Large groups go to a thread, whose hand-over is cheap compared with the write. Implements `syncer.Syncer`
    for files of a `PosixDisk`. `system_syncer` creates one if the kernel supports it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context
        self._thread = ThreadSyncer(loop)
        self._inline = InlineWhileQuick()
        self._done: Callable[[OSError | None], None] | None = None
        self._result: int | None = None
        self._submitted_at = 0.0
        self._watching = False

    def start(self) -> None:
        self._loop.add_reader(self._context.fileno, self._completed)
        self._watching = True
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
        assert isinstance(file, PosixFile), "the kernel syncs descriptors"
        assert self._done is None, "one submission at a time"
        if sum(map(len, buffers)) > WRITE_BYTES_MAX:
            self._thread.submit(file, buffers, offset, done, sync=sync, busy=True)
            return
        self._submitted_at = time.perf_counter()
        try:
            file.pwritev(buffers, offset)
            if sync:
                if not self._inline.permits(buffers, busy=busy):
                    start_sync(self._context, file.fileno(), self._note)
                    self._done = done
                    return
                file.fdatasync()
        except OSError as error:
            self._loop.call_soon(done, error)
            return
        self._inline.took(time.perf_counter() - self._submitted_at)
        self._loop.call_soon(done, None)

    def close(self) -> None:
        self._thread.close()
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._context.fileno)
        while self._done is not None:
            self._context.process_events(_REQUESTS_MAX, 1, -1)
            self._finish()
        # The eventfd stays open as long as the context lives, which may outlast the log's closing.
        if hasattr(self, "_context"):
            del self._context

    def _note(self, result: int) -> None:
        # The calling extension swallows exceptions, so this only records the result.
        self._result = result

    def _completed(self) -> None:
        self._context.poll()
        self._context.process_events(_REQUESTS_MAX, 0, 0)
        self._finish()

    def _finish(self) -> None:
        if self._result is None:
            return
        done, result = self._done, self._result
        self._done = self._result = None
        assert done is not None, "what completes was submitted"
        error = error_of(result)
        if error is None:
            self._inline.took(time.perf_counter() - self._submitted_at)
        done(error)


def start_sync(context: Context, descriptor: int, note: Callable[[int], None]) -> None:
    """Starts a kernel sync of a file's data; `note(result)` runs while the context processes events.

    Raises OSError if the kernel rejects the request: then nothing may be assumed durable.
    """
    from caio.linux_aio import Operation

    operation = Operation.fdsync(descriptor)
    operation.set_callback(note)
    try:
        taken = context.submit(operation)
    except (OverflowError, ValueError, SystemError) as error:  # so the extension calls errors of the system
        raise OSError(errno.EIO, f"the kernel refused to sync in the background: {error}") from error
    if taken != 1:
        raise OSError(errno.EIO, "the kernel did not take a sync in the background")


def error_of(result: int) -> OSError | None:
    """Returns the error of a completion; the extension returns the kernel's signed result as unsigned."""
    if result < 1 << 63:
        return None
    number = (1 << 64) - result
    return OSError(number, os.strerror(number))


def system_syncer(loop: asyncio.AbstractEventLoop, directory: str | None = None) -> Syncer:
    """Returns the best syncer of this system, tested on a scratch file in `directory` (None: any).

    Containers may forbid the kernel's asynchronous I/O, and other systems lack it: then a thread syncs.
    """
    try:
        return KernelSyncer(loop, _context_that_works(directory))
    except (ImportError, OSError, SystemError) as error:
        log.info("the log syncs in a thread: no asynchronous I/O in this kernel", reason=str(error))
        return ThreadSyncer(loop)


def _context_that_works(directory: str | None) -> Context:
    from caio.linux_aio import Context

    context = Context(max_requests=_REQUESTS_MAX)
    results: list[int] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"sync")
        file.flush()
        start_sync(context, file.fileno(), results.append)
        while not results:
            context.process_events(_REQUESTS_MAX, 1, -1)
    context.poll()
    error = error_of(results[0])
    if error is not None:
        raise error
    return context
