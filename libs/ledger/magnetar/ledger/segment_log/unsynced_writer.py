"""A syncer for logs that are not synced (journalSyncData=false): it writes groups and syncs none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from magnetar.common.runtime.disk import Buffer, DiskFile
from magnetar.ledger.segment_log.kernel_syncer import WRITE_BYTES_MAX
from magnetar.ledger.segment_log.syncer import SYNC_SECONDS, ThreadSyncer


class UnsyncedWriter:
    """Writes a group into the page cache on the loop, as `KernelSyncer` does, without the kernel's
    interface for syncs.

    That interface takes a twentieth of a standalone's start to load. Large groups go to a thread.
    Implements `syncer.Syncer`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadSyncer(loop)

    def start(self) -> None:
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
        assert not sync, "the log is one that is not synced"
        if sum(map(len, buffers)) > WRITE_BYTES_MAX:
            self._thread.submit(file, buffers, offset, done, sync=False, busy=True)
            return
        submitted_at = time.perf_counter()
        try:
            file.pwritev(buffers, offset)
        except OSError as error:
            self._loop.call_soon(done, error)
            return
        SYNC_SECONDS.observe(time.perf_counter() - submitted_at)
        self._loop.call_soon(done, None)

    def close(self) -> None:
        self._thread.close()
