"""The real disk: a directory tree under one root, through plain system calls."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar.common.runtime.disk import Buffer

IOV_MAX: Final = 1024
"""Limit of buffers in one pwritev (Linux's UIO_MAXIOV)."""

_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_NOWAIT_REFUSALS: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class PosixFile:
    """An open file descriptor with positional I/O."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path

    def fileno(self) -> int:
        """Returns the descriptor, for calls that `DiskFile` lacks; the file keeps ownership."""
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        for start in range(0, len(buffers), IOV_MAX):
            part = buffers[start : start + IOV_MAX]
            expected = sum(map(len, part))
            written = os.pwritev(self._fd, part, offset)
            if written < expected:
                self._write_rest(part, offset, written)
            offset += expected

    def _write_rest(self, buffers: Sequence[Buffer], offset: int, written: int) -> None:
        """Continues a short write, which may happen for any reason, such as a nearly full disk."""
        rest = memoryview(b"".join(buffers))[written:]
        offset += written
        while rest:
            count = os.pwrite(self._fd, rest, offset)
            if count == 0:
                raise OSError(errno.EIO, "write made no progress", self._path)
            rest = rest[count:]
            offset += count

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) in (0, length):
            return data
        parts = [data]
        have = len(data)
        while have < length and data:
            data = os.pread(self._fd, length - have, offset + have)
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        if not _NOWAIT:
            return None
        buffer = bytearray(length)
        try:
            count = os.preadv(self._fd, [buffer], offset, _NOWAIT)
        except OSError as error:
            if error.errno in _NOWAIT_REFUSALS:
                return None
            raise
        if count == length:
            return bytes(buffer)
        # A short result means the end of the file, or that only a part was cached.
        if offset + count >= self.size():
            return bytes(buffer[:count])
        return None

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PosixDisk:
    """The directory tree under `root`, which must exist."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def makedirs(self, path: str) -> None:
        os.makedirs(self._path(path), exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except FileNotFoundError:
            return []

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> PosixFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable or create else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        full = self._path(path)
        return PosixFile(os.open(full, flags, 0o640), full)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._path(source), self._path(target))

    def unlink(self, path: str) -> None:
        os.unlink(self._path(path))

    def sync_dir(self, path: str) -> None:
        fd = os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> PosixFile:
        full = self._path(path)
        fd = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return PosixFile(fd, full)

    def free_bytes(self) -> int:
        stats = os.statvfs(self._root)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self) -> int:
        stats = os.statvfs(self._root)
        # Space reserved for the superuser counts as used.
        return (stats.f_blocks - stats.f_bfree + stats.f_bavail) * stats.f_frsize
