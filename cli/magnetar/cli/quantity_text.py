"""Human-readable counts, sizes and durations."""

from __future__ import annotations


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural except for 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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


def duration_text(seconds: float) -> str:
    """Return a long duration as readable text, in its two largest units."""
    whole = int(seconds)
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{seconds:.3g} s"
