"""The real disk's system calls: long vectors, short writes, reads that must not wait, names."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.runtime.posix_disk import IOV_MAX, PosixDisk


def test_more_buffers_than_one_call_takes_are_written_in_order(tmp_path: Path) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    buffers = [b"%06d" % number for number in range(2 * IOV_MAX + 100)]
    file.pwritev(buffers, 3)
    assert file.pread(1 << 20, 3) == b"".join(buffers)
    assert file.size() == 3 + len(b"".join(buffers))
    file.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    real_writev, real_write = os.pwritev, os.pwrite

    def short_writev(fd: int, buffers: Sequence[Any], offset: int) -> int:
        return real_writev(fd, [b"".join(buffers)[:7]], offset)

    monkeypatch.setattr(os, "pwritev", short_writev)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real_write(fd, data[:5], offset))
    file.pwritev([b"0123456789", b"abcdefghij"], 0)
    assert file.pread(100, 0) == b"0123456789abcdefghij"
    file.close()


def test_a_write_that_makes_no_progress_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 0)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 0)
    with pytest.raises(OSError, match="no progress"):
        file.pwritev([b"x"], 0)
    file.close()


def test_a_read_ends_with_the_file(tmp_path: Path) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    file.pwritev([b"0123456789"], 0)
    assert file.pread(100, 4) == b"456789"
    assert file.pread(100, 50) == b""
    file.truncate(5)
    file.fdatasync()
    assert file.pread(100, 0) == b"01234"
    file.close()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_read_that_would_wait_or_is_not_supported_answers_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    file.pwritev([b"0123456789"], 0)
    assert file.pread_nowait(4, 2) in (b"2345", None)

    def refuse(*_args: Any) -> int:
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.pread_nowait(4, 2) is None
    file.close()


def test_a_read_of_which_only_a_part_is_cached_answers_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PosixDisk(tmp_path).open("f", create=True)
    file.pwritev([bytes(100)], 0)
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset, flags: 10)
    assert file.pread_nowait(50, 0) is None
    assert file.pread_nowait(50, 90) == bytes(10), "the end of the file"
    file.close()


def test_names(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    assert disk.listdir("nowhere") == []
    disk.makedirs("a/b")
    disk.makedirs("a/b")
    disk.open("a/b/one", create=True).close()
    with pytest.raises(FileExistsError):
        disk.open("a/b/one", create=True)
    with pytest.raises(FileNotFoundError):
        disk.open("a/b/two")
    disk.rename("a/b/one", "a/b/two")
    disk.sync_dir("a/b")
    assert disk.listdir("a/b") == ["two"]
    reader = disk.open("a/b/two", writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.pwritev([b"x"], 0)
    reader.close()
    reader.close()
    disk.unlink("a/b/two")
    assert disk.listdir("a/b") == []
    assert disk.free_bytes() > 0
