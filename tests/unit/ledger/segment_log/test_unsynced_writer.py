"""The syncer of logs that are not synced: groups reach the file, outcomes come on the loop."""

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
from magnetar.ledger.segment_log.kernel_syncer import WRITE_BYTES_MAX
from magnetar.ledger.segment_log.unsynced_writer import UnsyncedWriter


async def submit(writer: UnsyncedWriter, file: PosixFile, data: bytes, offset: int = 0) -> OSError | None:
    done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    writer.submit(file, [data], offset, done.set_result, sync=False, busy=False)
    assert not done.done(), "never called back from inside submit"
    return await done


def run(directory: Path, act: Callable[[UnsyncedWriter, PosixFile], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        writer = UnsyncedWriter(asyncio.get_running_loop())
        writer.start()
        file = PosixDisk(directory).open("file", create=True)
        assert isinstance(file, PosixFile)
        try:
            await act(writer, file)
        finally:
            writer.close()
            writer.close()
            file.close()

    asyncio.run(main())


def test_groups_are_written_where_they_belong_and_nothing_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[PosixFile] = []
    monkeypatch.setattr(PosixFile, "fdatasync", synced.append)

    async def act(writer: UnsyncedWriter, file: PosixFile) -> None:
        assert await submit(writer, file, b"one") is None
        assert await submit(writer, file, b"two", 3) is None

    run(tmp_path, act)
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    assert synced == []


@pytest.mark.parametrize(("size", "on_the_loop"), [(WRITE_BYTES_MAX, True), (WRITE_BYTES_MAX + 1, False)])
def test_only_large_groups_are_written_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, on_the_loop: bool
) -> None:
    threads: list[threading.Thread] = []
    write = PosixFile.pwritev

    def noted(file: PosixFile, buffers: Sequence[Buffer], offset: int) -> None:
        threads.append(threading.current_thread())
        write(file, buffers, offset)

    monkeypatch.setattr(PosixFile, "pwritev", noted)

    async def act(writer: UnsyncedWriter, file: PosixFile) -> None:
        assert await submit(writer, file, bytes(size)) is None

    run(tmp_path, act)
    assert (tmp_path / "file").stat().st_size == size
    assert [thread is threading.main_thread() for thread in threads] == [on_the_loop]


def test_an_error_of_the_disk_is_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: PosixFile, buffers: Sequence[Buffer], offset: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(PosixFile, "pwritev", full)

    async def act(writer: UnsyncedWriter, file: PosixFile) -> None:
        error = await submit(writer, file, b"one")
        assert error is not None
        assert error.errno == errno.ENOSPC

    run(tmp_path, act)
