"""Detects that files were replaced: their state, compared with the state when they were read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

Signature: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]
"""Device, inode, modification time in nanoseconds and size of each file; None for one that is missing."""


def signature_of(paths: Iterable[str | os.PathLike[str]]) -> Signature:
    """Returns the present state of the files; links are followed, so that swapped directories count."""
    return tuple(_state(path) for path in paths)


def _state(path: str | os.PathLike[str]) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
