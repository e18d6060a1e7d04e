"""How long requests took, as BookKeeper tells it: quantiles of the last minute, counts and sums for ever."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)

HALF_WINDOW_S: Final = 30.0

_BOUNDS_MS: Final = tuple(0.01 * 1.2**step for step in range(90))
"""Upper bounds of the buckets: 10 us to over 100 s, each a fifth above the one before."""


class Latency:
    """One kind of request, successes and failures apart. `now` is in seconds and never goes back."""

    __slots__ = ("_current", "_previous", "_since", "count", "sum_ms")

    def __init__(self) -> None:
        self.count = {True: 0, False: 0}
        self.sum_ms = {True: 0.0, False: 0.0}
        self._current = {True: [0] * (len(_BOUNDS_MS) + 1), False: [0] * (len(_BOUNDS_MS) + 1)}
        self._previous = {True: [0] * (len(_BOUNDS_MS) + 1), False: [0] * (len(_BOUNDS_MS) + 1)}
        self._since = 0.0

    def observe(self, now: float, seconds: float, *, success: bool = True, count: int = 1) -> None:
        """`count` requests took this long."""
        self._turn(now)
        milliseconds = seconds * 1000
        self.count[success] += count
        self.sum_ms[success] += milliseconds * count
        self._current[success][bisect_left(_BOUNDS_MS, milliseconds)] += count

    def quantiles_ms(self, now: float, *, success: bool) -> Iterator[tuple[float, float]]:
        """(quantile, milliseconds at most) of the last half to whole minute; NaN when there was nothing."""
        self._turn(now)
        buckets = [a + b for a, b in zip(self._current[success], self._previous[success], strict=True)]
        total = sum(buckets)
        if not total:
            yield from ((quantile, float("nan")) for quantile in QUANTILES)
            return
        place, seen = 0, buckets[0]
        for quantile in QUANTILES:
            while seen < quantile * total:
                place += 1
                seen += buckets[place]
            yield quantile, _BOUNDS_MS[min(place, len(_BOUNDS_MS) - 1)]

    def _turn(self, now: float) -> None:
        age_s = now - self._since
        if age_s < HALF_WINDOW_S:
            return
        self._since = now
        for success, buckets in self._current.items():
            self._previous[success] = buckets if age_s < 2 * HALF_WINDOW_S else [0] * len(buckets)
            self._current[success] = [0] * len(buckets)
