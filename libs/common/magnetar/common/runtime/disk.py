"""The disk as an injected dependency.

`Disk` and `DiskFile` are the only interface through which storage code uses files. The calls block: the
caller chooses whether they run on the event loop, in a thread or at a moment of simulated time (see
`runtime.blocking` and the log's syncer). The simulator implements both protocols with a disk that loses,
tears and corrupts unsynced data.

Paths are relative to the disk's root, with '/' between the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """An open file with positional reads and writes. Safe to read while another thread writes elsewhere."""

    def size(self) -> int:
        """Returns the length in bytes."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all buffers consecutively at `offset`; continues short writes, respects IOV_MAX.

        Buffers are borrowed until the call returns. Raises OSError; then any part may have been written.
        """
        ...

    def fdatasync(self) -> None:
        """Make the file's bytes and length durable. Raises OSError; then nothing may be assumed durable."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Returns up to `length` bytes at `offset`, fewer only at the end of the file. May block on the
        device.
        """
        ...

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """Reads like `pread`, but returns None instead of waiting for the device (preadv2 with
        RWF_NOWAIT).
        """
        ...

    def truncate(self, length: int) -> None:
        """Set the length; durable after the next `fdatasync`."""
        ...

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        ...


class Disk(Protocol):
    """A directory tree. Names become durable only with `sync_dir` of the directory that contains them."""

    def makedirs(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]:
        """Returns the sorted names in a directory; empty if it does not exist."""
        ...

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> DiskFile:
        """Opens a file; `create` creates an empty one and raises FileExistsError if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename, replacing `target`; durable after `sync_dir`."""
        ...

    def unlink(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory durable."""
        ...

    def lock(self, path: str) -> DiskFile:
        """Creates the file if absent and locks it for this process until the returned file is closed.

        Raises BlockingIOError if another process holds the lock.
        """
        ...

    def free_bytes(self) -> int:
        """Returns the bytes that an unprivileged process can still write."""
        ...

    def total_bytes(self) -> int:
        """Returns the size of the whole file system in bytes, including other users' data."""
        ...


def replace_file(disk: Disk, name: str, data: bytes) -> None:
    """Replaces a small file in the root atomically and durably.

    Raises OSError; the old file then stays unchanged.
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
