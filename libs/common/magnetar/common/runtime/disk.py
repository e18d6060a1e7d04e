"""The disk as a parameter.

`Disk` and `DiskFile` are the whole surface through which storage code touches files. The calls block and are
plain: whether they run on the event loop, in a thread or at a moment of simulated time is the caller's choice
(see `runtime.blocking` and the log's syncer). The simulator implements the same two protocols with a disk
that forgets, tears and corrupts what was not synced.

Paths are relative to the disk's root, with '/' between the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """An open file with positional reads and writes. Safe to read while another thread writes elsewhere."""

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers one after the other at `offset`; continues short writes, respects IOV_MAX.

        Buffers are borrowed until the call returns. Raises OSError; then any part may have been written.
        """
        ...

    def fdatasync(self) -> None:
        """Make the file's bytes and length durable. Raises OSError; then nothing may be assumed durable."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes at `offset`, fewer only at the end of the file. May block on the device."""
        ...

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """Like `pread` but None instead of waiting for the device (preadv2 with RWF_NOWAIT)."""
        ...

    def truncate(self, length: int) -> None:
        """Set the length; durable after the next `fdatasync`."""
        ...

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        ...


class Disk(Protocol):
    """A directory tree. Names become durable only with `sync_dir` of the directory that holds them."""

    def makedirs(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        ...

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> DiskFile:
        """Open a file; `create` makes a new empty one and fails when it exists (FileExistsError)."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename, replacing `target`; durable after `sync_dir`."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""
        ...

    def lock(self, path: str) -> DiskFile:
        """Create the file when absent and lock it for this process until the returned file is closed.

        Raises BlockingIOError when another process holds it.
        """
        ...

    def free_bytes(self) -> int:
        """Bytes that can still be written, as an unprivileged process sees it."""
        ...

    def total_bytes(self) -> int:
        """Bytes of the whole file system, what others use of it included."""
        ...


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Write a small file of the root as a whole, durably.

    Raises OSError; the old file then stays as it was.
    """
    new = f"{name}.new"
    if new in disk.listdir(""):
        disk.unlink(new)
    file = disk.open(new, create=True)
    try:
        file.pwritev([data], 0)
        file.fdatasync()
    finally:
        file.close()
    disk.rename(new, name)
    disk.sync_dir("")
