"""The thread syncer: outcomes on the loop, never from inside, small quick groups inline."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from magnetar.common.runtime.disk import Buffer
from magnetar.ledger.segment_log.syncer import INLINE_BYTES_MAX, ThreadSyncer


class FakeFile:
    """Notes which thread wrote; may fail."""

    def __init__(self, *, fail: bool = False) -> None:
        self.fail = fail
        self.threads: list[int] = []
        self.synced = 0

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self.threads.append(threading.get_ident())

    def fdatasync(self) -> None:
        if self.fail:
            raise OSError(errno.EIO, "sync failed")
        self.synced += 1

    def size(self) -> int:
        return 0

    def pread(self, length: int, offset: int) -> bytes:
        return b""

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        return None

    def truncate(self, length: int) -> None: ...

    def close(self) -> None: ...


async def submit(
    syncer: ThreadSyncer, file: FakeFile, size: int, *, busy: bool, sync: bool = True
) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.submit(file, [bytes(size)], 0, done.set_result, sync=sync, busy=busy)
    assert not done.done(), "never called back from inside submit"
    return await done


def run(act: Callable[[ThreadSyncer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        syncer = ThreadSyncer(asyncio.get_running_loop())
        syncer.start()
        try:
            await act(syncer)
        finally:
            syncer.close()
            syncer.close()

    asyncio.run(main())


def test_large_and_busy_groups_go_to_the_thread_and_small_ones_stay_while_syncs_are_quick() -> None:
    async def act(syncer: ThreadSyncer) -> None:
        here = threading.get_ident()
        file = FakeFile()
        for size, busy in ((100, False), (100, True), (INLINE_BYTES_MAX + 1, False)):
            assert await submit(syncer, file, size, busy=busy) is None
        assert [thread == here for thread in file.threads] == [True, False, False]
        syncer._inline.average_s = 1.0
        await submit(syncer, file, 100, busy=False)
        assert file.threads[-1] != here
        assert file.synced == 4

    run(act)


def test_errors_come_back_from_either_place() -> None:
    async def act(syncer: ThreadSyncer) -> None:
        for busy in (False, True):
            error = await submit(syncer, FakeFile(fail=True), 100, busy=busy)
            assert error is not None
            assert error.errno == errno.EIO

    run(act)


def test_without_sync_nothing_is_synced() -> None:
    async def act(syncer: ThreadSyncer) -> None:
        file = FakeFile()
        assert await submit(syncer, file, 10, busy=True, sync=False) is None
        assert (len(file.threads), file.synced) == (1, 0)

    run(act)
