"""Objects stored as local files: complete or absent, also after a power loss."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

_TRIES: Final = 5
"""Attempts at a write: a concurrent deletion may remove an empty directory just created for it."""


def copy_durably(local: str, path: str) -> None:
    """Copies a file durably to the object `path`. Raises OSError."""
    with open(local, "rb") as source:

        def pieces() -> Iterator[bytes]:
            source.seek(0)
            return iter(lambda: source.read(1 << 20), b"")

        _write_in_a_few_tries(path, pieces)


def write_durably(path: str, data: bytes) -> None:
    """Writes `data` durably as the object `path`. Raises OSError."""
    _write_in_a_few_tries(path, lambda: iter((data,)))


def _write_in_a_few_tries(path: str, pieces: Callable[[], Iterator[bytes]]) -> None:
    left = _TRIES
    while True:
        left -= 1
        try:
            _write(path, pieces())
        except FileNotFoundError:
            if not left:
                raise
        else:
            break


def _write(path: str, pieces: Iterable[bytes]) -> None:
    """Writes under a temporary name first, so that an object with its final name is always complete."""
    directory, name = os.path.split(path)
    changed = _make_directories(directory)
    unfinished = os.path.join(directory, f".{name}.{os.getpid()}-{threading.get_ident()}.unfinished")
    try:
        with open(unfinished, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    for each in changed:
        _sync_directory(each)


def _make_directories(directory: str) -> Sequence[str]:
    """Creates a directory and its parents, and syncs each directory that received an entry."""
    changed = [directory]
    above = directory
    while not os.path.isdir(above):
        above = os.path.dirname(above)
        changed.append(above)
    os.makedirs(directory, exist_ok=True)
    return changed


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
