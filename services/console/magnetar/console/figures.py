"""Figures as text: bytes, counts, rates, ages and times, for templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNTS: Final = ("", "k", "M", "G", "T")
_AGES: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_TIME_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999, in milliseconds since 1970."""


def byte_text(number: float | None) -> str:
    """Return bytes with a binary unit; "-" for none or a negative number, which stands for unknown."""
    if number is None or number < 0:
        return "–"
    return _scaled(float(number), 1024, _BYTES)


def count_text(number: float | None) -> str:
    """Return a count, from a million on with a decimal unit."""
    if number is None:
        return "–"
    if abs(number) < 1_000_000:
        return f"{int(number):,}"
    return _scaled(float(number), 1000, _COUNTS)


def rate_text(number: float | None) -> str:
    """Return a rate per second."""
    if number is None:
        return "–"
    if number < 10:
        return f"{number:.1f}".removesuffix(".0")
    return count_text(number) if number < 1_000_000 else _scaled(number, 1000, _COUNTS)


def latency_text(ms: float) -> str:
    """Return milliseconds with three digits, from a second on in seconds."""
    if ms >= 1000:
        return f"{ms / 1000:.3g} s"
    return f"{ms:.3g} ms"


def age_text(seconds: float | None) -> str:
    """Return an age in its largest unit; "-" for a negative one, which stands for unknown."""
    if seconds is None or seconds < 0:
        return "–"
    for size, unit in _AGES:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def time_text(time_ms: float | None) -> str:
    """Return milliseconds since 1970 as a time in UTC; "-" for 0, and for what is no time."""
    if not time_ms or not 0 < time_ms <= _TIME_MS_MAX:
        return "–"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units:
        if abs(number) < base or unit == units[-1]:
            text = f"{number:.0f}" if unit == units[0] or abs(number) >= 100 else f"{number:.1f}"
            return f"{text} {unit}".rstrip()
        number /= base
    raise AssertionError("the last unit takes every number")
