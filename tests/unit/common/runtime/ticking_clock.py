"""A clock for work that is cut into slices by what a look at it says."""

from __future__ import annotations


class TickingClock:
    """Each look at it takes some time."""

    def __init__(self, tick_s: float) -> None:
        self.now = 0.0
        self._tick_s = tick_s

    def __call__(self) -> float:
        self.now += self._tick_s
        return self.now
