"""Human-readable sizes and durations."""

from __future__ import annotations


def size_text(count: float) -> str:
    """Return a size in bytes as readable text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def ms_text(seconds: float) -> str:
    """Return a duration as readable text."""
    return f"{seconds * 1000:.3g} ms"
