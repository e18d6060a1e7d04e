"""Sizes and durations as text for people."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def ms_text(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1000:.3g} ms"
