"""A latency histogram with buckets 1.6 % wide; its memory is bounded for any duration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_BITS: Final = 6
_BUCKETS: Final = (64 - _BITS) << _BITS
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9, 99.99)


class Latencies:
    """Durations in seconds, kept as whole microseconds."""

    __slots__ = ("_buckets", "_max_us", "_sum_us", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buckets = [0] * _BUCKETS
        self._max_us = 0
        self._sum_us = 0

    def add(self, durations_s: Iterable[float]) -> None:
        """Add a latency. Negative values, from clock differences, count as 0."""
        buckets = self._buckets
        for duration in durations_s:
            value = int(duration * 1e6) if duration > 0 else 0
            shift = max(value.bit_length() - _BITS - 1, 0)
            buckets[(shift << _BITS) + (value >> shift)] += 1
            self.count += 1
            self._sum_us += value
            if value > self._max_us:
                self._max_us = value

    def percentile_ms(self, percent: float) -> float:
        """Return the percentile in milliseconds, accurate to 1.6 %; 0 without values."""
        wanted = self.count * percent / 100
        seen = 0
        for index, found in enumerate(self._buckets):
            seen += found
            if found and seen >= wanted:
                shift = max((index >> _BITS) - 1, 0)
                upper = ((index - (shift << _BITS) + 1) << shift) - 1
                return min(upper, self._max_us) / 1000
        return 0.0

    @property
    def max_ms(self) -> float:
        return self._max_us / 1000

    @property
    def mean_ms(self) -> float:
        return self._sum_us / self.count / 1000 if self.count else 0.0

    def summary(self) -> dict[str, float]:
        """Return the reported latencies in milliseconds, by name."""
        shown = {"mean": self.mean_ms}
        shown |= {f"p{percent:g}": self.percentile_ms(percent) for percent in PERCENTILES}
        return {name: round(value, 3) for name, value in (shown | {"max": self.max_ms}).items()}
