"""A simulated disk that keeps only synced data.

Every file has durable content and page cache content; between the two are the page versions written since the
last sync. Directory changes are pending until their directory is synced. `crash` decides by a seed which of
these survive and returns the disk for the next process. Errors (no space, EIO on a sync, bit flips,
unreadable pages) are injected on demand. Every modifying call counts as one operation, so that a workload can
be cut before any of them.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.runtime.disk import Buffer
from magnetar.sim.loop import SimCrash

PAGE: Final = 4096
SECTOR: Final = 512
"""Bytes that a device writes atomically: pages tear between sectors."""


class Inode:
    """A file's bytes: durable, and in the page cache."""

    __slots__ = ("cached", "durable", "error_sequence", "unreadable", "versions")

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.cached = bytearray(content)
        self.versions: dict[int, list[bytes]] = {}
        self.error_sequence = 0
        self.unreadable: set[int] = set()
        """Pages that the device cannot read; a write replaces them by good ones."""

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.cached):
            self.cached.extend(bytes(end - len(self.cached)))
        self.cached[offset:end] = data
        for page in range(offset // PAGE, (end + PAGE - 1) // PAGE):
            self.versions.setdefault(page, []).append(self._page(page))
            self.unreadable.discard(page)

    def _page(self, page: int) -> bytes:
        return bytes(self.cached[page * PAGE : (page + 1) * PAGE])

    def truncate(self, length: int) -> None:
        if length > len(self.cached):
            self.cached.extend(bytes(length - len(self.cached)))
        del self.cached[length:]
        for page in [page for page in self.versions if page * PAGE >= length]:
            del self.versions[page]

    def sync(self) -> None:
        """Writes back dirty pages only: pages lost by a failed sync stay lost, though the cache shows
        them.
        """
        del self.durable[len(self.cached) :]
        self.durable.extend(bytes(len(self.cached) - len(self.durable)))
        for page in self.versions:
            start = page * PAGE
            self.durable[start : start + PAGE] = self.cached[start : start + PAGE]
        self.versions.clear()

    def fail_sync(self) -> None:
        """Simulates Linux after a failed writeback: the pages are clean, in the cache, and not on the
        disk.
        """
        self.versions.clear()
        self.error_sequence += 1

    def copy(self) -> Inode:
        """Returns a copy of the file, including its page cache."""
        twin = Inode()
        twin.durable[:] = self.durable
        twin.cached[:] = self.cached
        twin.versions = {page: list(versions) for page, versions in self.versions.items()}
        twin.unreadable = set(self.unreadable)
        return twin

    def survive(self, rng: random.Random) -> Inode:
        """Returns the file after a power loss: each unsynced page old, new or a version between; one torn."""
        content = bytearray(self.durable)
        if rng.random() < 0.5 and len(content) != len(self.cached):
            del content[len(self.cached) :]
            content.extend(bytes(len(self.cached) - len(content)))
        # Three modes: all pages lost, all kept, or each decided separately, so that plain outcomes are common
        # too.
        keep = rng.choice((0.0, 1.0, 0.5, 0.5))
        torn = rng.choice(sorted(self.versions)) if self.versions and rng.random() < 0.5 else -1
        for page in sorted(self.versions):
            versions = self.versions[page]
            if page != torn and rng.random() >= keep:
                continue
            new = versions[-1] if rng.random() < 0.7 else rng.choice(versions)
            start = page * PAGE
            if start + len(new) > len(content):
                content.extend(bytes(start + len(new) - len(content)))
            if page == torn:
                new = _tear(bytes(content[start : start + len(new)]), new, rng)
            content[start : start + len(new)] = new
        survivor = Inode(bytes(content))
        survivor.unreadable = set(self.unreadable)
        return survivor


def _tear(old: bytes, new: bytes, rng: random.Random) -> bytes:
    cut = rng.randrange(0, len(new) + 1, SECTOR) if len(new) >= SECTOR else 0
    return new[:cut] + old[cut:] if rng.random() < 0.5 else old[:cut] + new[cut:]


@dataclass(slots=True)
class _Change:
    """A directory change that is not durable: `target` gets `inode` (None: is removed), `source` is
    removed.
    """

    target: str
    inode: Inode | None
    source: str | None = None


@dataclass(slots=True)
class Faults:
    """Injected disk faults, by operation number or until changed."""

    crash_at: int | None = None
    """The process dies before this operation: it and every later one raises SimCrash."""

    sync_errors: set[int] = field(default_factory=set)
    """Numbers of the file sync operations that return EIO."""

    skip_file_sync: bool = False
    """Mutation: a file's sync does nothing and reports success."""

    skip_dir_sync: bool = False
    """Mutation: a directory's sync does nothing and reports success."""


class SimDisk:
    """One simulated disk. `capacity` limits the bytes of its files; `on_operation` runs before each
    change.
    """

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self.faults = Faults()
        self.operations = 0
        self.on_operation: Callable[[int, str], None] | None = None
        self.crashed = False
        self._locks: set[str] = set()
        self._files: dict[str, Inode] = {}
        self._directories: set[str] = {""}
        self._durable_files: dict[str, Inode] = {}
        self._changes: list[_Change] = []

    # --- Disk ---

    def makedirs(self, path: str) -> None:
        """Creates directories, which are durable at once; names of files in them are not."""
        self.operation(f"makedirs {path}")
        parts = path.split("/")
        self._directories.update("/".join(parts[: i + 1]) for i in range(len(parts)))

    def listdir(self, path: str) -> list[str]:
        self.check_alive()
        prefix = f"{path}/" if path else ""
        names = {name[len(prefix) :] for name in self._files if name.startswith(prefix)}
        names |= {
            name[len(prefix) :] for name in self._directories if name.startswith(prefix) and name != path
        }
        return sorted(name for name in names if name and "/" not in name)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        self.check_alive()
        if create:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, "exists", path)
            if _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self.operation(f"create {path}")
            inode = Inode()
            self._files[path] = inode
            self._changes.append(_Change(path, inode))
        elif path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return SimFile(self, path, self._files[path])

    def rename(self, source: str, target: str) -> None:
        self.operation(f"rename {source} {target}")
        if source not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        inode = self._files.pop(source)
        self._files[target] = inode
        self._changes.append(_Change(target, inode, source))

    def unlink(self, path: str) -> None:
        self.operation(f"unlink {path}")
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self._files[path]
        self._changes.append(_Change(path, None))

    def sync_dir(self, path: str) -> None:
        self.operation(f"sync_dir {path}")
        if self.faults.skip_dir_sync:
            return
        rest = []
        for change in self._changes:
            if _parent(change.target) == path:
                _apply(change, self._durable_files)
            else:
                rest.append(change)
        self._changes = rest

    def lock(self, path: str) -> SimFile:
        self.check_alive()
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self._locks.add(path)
        return SimFile(self, path, Inode(), locked=True)

    def free_bytes(self) -> int:
        return max(0, self.capacity - sum(len(inode.cached) for inode in self._files.values()))

    def total_bytes(self) -> int:
        return self.capacity

    # --- simulation interface ---

    def crash(self, rng: random.Random) -> SimDisk:
        """Returns the disk that the next process finds after a power loss now. This one stays unchanged."""
        files = dict(self._durable_files)
        keep = rng.choice((0.0, 1.0, 0.5, 0.5))
        for change in self._changes:
            if rng.random() < keep:
                _apply(change, files)
        survivors: dict[int, Inode] = {}
        return self._successor(
            {path: _survivor(inode, rng, survivors) for path, inode in sorted(files.items())}
        )

    def kill(self) -> SimDisk:
        """Returns the disk that the next process finds after this one was killed: the page cache survives.

        A copy, so this one stays unchanged.
        """
        twins: dict[int, Inode] = {}

        def twin(inode: Inode) -> Inode:
            return twins.setdefault(id(inode), inode.copy())

        successor = self._successor({path: twin(inode) for path, inode in self._files.items()})
        successor._durable_files = {path: twin(inode) for path, inode in self._durable_files.items()}
        successor._changes = [
            _Change(change.target, None if change.inode is None else twin(change.inode), change.source)
            for change in self._changes
        ]
        return successor

    def _successor(self, files: dict[str, Inode]) -> SimDisk:
        successor = SimDisk(self.capacity)
        successor._directories = set(self._directories)
        successor._files = files
        successor._durable_files = dict(files)
        return successor

    def flip_bit(self, path: str, bit: int) -> None:
        """Inverts one bit of a file, on the disk and in the cache."""
        inode = self._files[path]
        for content in (inode.cached, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << (bit % 8)

    def spoil(self, path: str, offset: int) -> None:
        """Makes the page at an offset unreadable (EIO) until it is written."""
        self._files[path].unreadable.add(offset // PAGE)

    def overwrite(self, path: str, data: bytes, offset: int) -> None:
        """Overwrites bytes of a file durably and unnoticed (stale blocks, a bad controller)."""
        inode = self._files[path]
        inode.write(data, offset)
        inode.sync()

    def content(self, path: str) -> bytes:
        """Returns a file's content in the page cache."""
        return bytes(self._files[path].cached)

    def paths(self) -> list[str]:
        """Returns every file path, sorted."""
        return sorted(self._files)

    def operation(self, what: str) -> None:
        """Counts a modifying call; the process may die here."""
        self.check_alive()
        self.operations += 1
        if self.faults.crash_at is not None and self.operations >= self.faults.crash_at:
            self.crashed = True
            raise SimCrash(f"crash before operation {self.operations}: {what}")
        if self.on_operation is not None:
            self.on_operation(self.operations, what)

    def check_alive(self) -> None:
        if self.crashed:
            raise SimCrash("the process is dead")

    def unlock(self, path: str) -> None:
        self._locks.discard(path)


class SimFile:
    """An open file of a `SimDisk`. A closed one raises EBADF: a real descriptor might be another file's."""

    __slots__ = ("_closed", "_disk", "_error_sequence", "_inode", "_locked", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, *, locked: bool = False) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._error_sequence = inode.error_sequence
        self._locked = locked
        self._closed = False

    def size(self) -> int:
        self._check_open()
        return len(self._inode.cached)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._check_open()
        data = b"".join(buffers)
        self._disk.operation(f"write {self._path} {offset}+{len(data)}")
        growth = offset + len(data) - len(self._inode.cached)
        if growth > 0 and growth > (free := self._disk.free_bytes()):
            fits = max(0, len(data) - growth + free)
            self._inode.write(data[:fits], offset)
            raise OSError(errno.ENOSPC, "no space left", self._path)
        self._inode.write(data, offset)

    def fdatasync(self) -> None:
        self._check_open()
        self._disk.operation(f"sync {self._path}")
        faults = self._disk.faults
        if self._disk.operations in faults.sync_errors:
            self._inode.fail_sync()
        # As on Linux, each descriptor open during a failed writeback reports it once.
        if self._error_sequence != self._inode.error_sequence:
            self._error_sequence = self._inode.error_sequence
            raise OSError(errno.EIO, "sync failed", self._path)
        if not faults.skip_file_sync:
            self._inode.sync()

    def pread(self, length: int, offset: int) -> bytes:
        self._check_open()
        if self._inode.unreadable and length:
            pages = range(offset // PAGE, (offset + length - 1) // PAGE + 1)
            if not self._inode.unreadable.isdisjoint(pages):
                raise OSError(errno.EIO, "Input/output error", self._path)
        return bytes(self._inode.cached[offset : offset + length])

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """Reads cached bytes, which exist two thirds of the time, determined by offset so that runs
        repeat.
        """
        self._check_open()
        return None if (offset // PAGE) % 3 == 0 else self.pread(length, offset)

    def truncate(self, length: int) -> None:
        self._check_open()
        self._disk.operation(f"truncate {self._path} {length}")
        self._inode.truncate(length)

    def close(self) -> None:
        self._closed = True
        if self._locked:
            self._disk.unlock(self._path)
            self._locked = False

    def _check_open(self) -> None:
        self._disk.check_alive()
        if self._closed:
            raise OSError(errno.EBADF, "the file was closed", self._path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _apply(change: _Change, files: dict[str, Inode]) -> None:
    if change.source is not None:
        files.pop(change.source, None)
    if change.inode is None:
        files.pop(change.target, None)
    else:
        files[change.target] = change.inode


def _survivor(inode: Inode, rng: random.Random, survivors: dict[int, Inode]) -> Inode:
    if id(inode) not in survivors:
        survivors[id(inode)] = inode.survive(rng)
    return survivors[id(inode)]
