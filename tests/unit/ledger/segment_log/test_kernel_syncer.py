"""The kernel's syncer: the promises of the thread's, on real files, and a thread where the kernel cannot."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.runtime.disk import Buffer
from magnetar.common.runtime.posix_disk import PosixDisk, PosixFile
from magnetar.ledger.segment_log import kernel_syncer
from magnetar.ledger.segment_log.kernel_syncer import (
    WRITE_BYTES_MAX,
    KernelSyncer,
    error_of,
    start_sync,
    system_syncer,
)
from magnetar.ledger.segment_log.syncer import INLINE_BYTES_MAX, ThreadSyncer


async def submit(
    syncer: KernelSyncer, file: PosixFile, data: bytes, *, busy: bool = True, sync: bool = True
) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.submit(file, [data], 0, done.set_result, sync=sync, busy=busy)
    assert not done.done(), "never called back from inside submit"
    return await done


def run(directory: Path, act: Callable[[KernelSyncer, PosixFile], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        syncer = system_syncer(asyncio.get_running_loop(), str(directory))
        if not isinstance(syncer, KernelSyncer):
            pytest.skip("this kernel has no asynchronous I/O, or the container forbids it")
        syncer.start()
        file = PosixDisk(directory).open("file", create=True)
        assert isinstance(file, PosixFile)
        try:
            await act(syncer, file)
        finally:
            syncer.close()
            syncer.close()
            file.close()

    asyncio.run(main())


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors that were given to the kernel to sync."""
    descriptors: list[int] = []

    def start(context: Any, descriptor: int, note: Callable[[int], None]) -> None:
        descriptors.append(descriptor)
        start_sync(context, descriptor, note)

    monkeypatch.setattr(kernel_syncer, "start_sync", start)
    return descriptors


def test_large_and_busy_groups_are_synced_by_the_kernel_and_small_ones_inline_while_syncs_are_quick(
    tmp_path: Path, submitted: list[int]
) -> None:
    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        submitted.clear()
        syncer._inline.average_s = 0.0
        assert await submit(syncer, file, b"a" * 100, busy=False) is None
        assert submitted == []
        assert await submit(syncer, file, b"b" * 100, busy=True) is None
        assert await submit(syncer, file, b"c" * (INLINE_BYTES_MAX + 1), busy=False) is None
        assert submitted == [file.fileno()] * 2
        syncer._inline.average_s = 1.0
        assert await submit(syncer, file, b"d" * 100, busy=False) is None
        assert submitted == [file.fileno()] * 3
        assert file.pread(101, 0) == b"d" * 100 + b"c"

    run(tmp_path, act)


def test_a_group_that_takes_long_to_copy_is_written_and_synced_off_the_loop(
    tmp_path: Path, submitted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    pwritev = PosixFile.pwritev

    def write(self: PosixFile, buffers: Sequence[Buffer], offset: int) -> None:
        threads.append(threading.get_ident())
        pwritev(self, buffers, offset)

    monkeypatch.setattr(PosixFile, "pwritev", write)

    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        submitted.clear()
        large = bytes(WRITE_BYTES_MAX + 1)
        assert await submit(syncer, file, large, busy=True) is None
        assert submitted == []
        assert threads[-1] != threading.get_ident()
        assert file.size() == len(large)
        assert await submit(syncer, file, b"x") is None
        assert threads[-1] == threading.get_ident()

    run(tmp_path, act)


def test_without_sync_nothing_is_synced(tmp_path: Path, submitted: list[int]) -> None:
    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        submitted.clear()
        assert await submit(syncer, file, b"x", sync=False) is None
        assert submitted == []
        assert file.pread(1, 0) == b"x"

    run(tmp_path, act)


def test_a_sync_that_the_kernel_reports_as_failed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        def fail(context: Any, descriptor: int, note: Callable[[int], None]) -> None:
            start_sync(context, descriptor, lambda result: note((1 << 64) - errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(kernel_syncer, "start_sync", fail)
            error = await submit(syncer, file, b"x")
        assert error is not None
        assert error.errno == errno.EIO
        assert await submit(syncer, file, b"x") is None

    run(tmp_path, act)


def test_a_write_that_fails_and_a_sync_that_is_not_taken_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        closed = PosixDisk(tmp_path).open("closed", create=True)
        assert isinstance(closed, PosixFile)
        closed.close()
        error = await submit(syncer, closed, b"x")
        assert error is not None
        assert error.errno == errno.EBADF
        with pytest.raises(OSError, match="refused to sync"):
            start_sync(syncer._context, -1, lambda result: None)
        assert await submit(syncer, file, b"x") is None, "and the next one works"

    run(tmp_path, act)


def test_closing_waits_for_the_sync_under_way(tmp_path: Path) -> None:
    async def act(syncer: KernelSyncer, file: PosixFile) -> None:
        heard: list[OSError | None] = []
        syncer.submit(file, [b"x"], 0, heard.append, sync=True, busy=True)
        syncer.close()
        assert heard == [None]

    run(tmp_path, act)


def test_thread_syncs_without_kernel_support(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(context: Any, descriptor: int, note: Callable[[int], None]) -> None:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(kernel_syncer, "start_sync", refuse)

    async def main() -> None:
        assert isinstance(system_syncer(asyncio.get_running_loop()), ThreadSyncer)

    asyncio.run(main())


def test_a_completion_is_read_as_the_signed_number_that_it_is() -> None:
    assert error_of(0) is None
    error = error_of((1 << 64) - errno.ENOSPC)
    assert error is not None
    assert error.errno == errno.ENOSPC
