"""Slices of work: long work on the event loop in pieces of about a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.001
"""Work between two turns of the event loop."""


class Slices:
    """Says when a slice of work is over; looks at the clock once in `steps_per_look` steps only."""

    __slots__ = ("_clock", "_ends", "_steps", "_steps_per_look")

    def __init__(self, clock: Callable[[], float], steps_per_look: int) -> None:
        self._clock = clock
        self._steps_per_look = steps_per_look
        self._steps = 0
        self.begin()

    def begin(self) -> None:
        """A slice begins now."""
        self._ends = self._clock() + SLICE_S

    def over(self) -> bool:
        """To be called once a step; the caller lets others run when it is True."""
        self._steps += 1
        if self._steps % self._steps_per_look:
            return False
        now = self._clock()
        if now < self._ends:
            return False
        # What others do before the next step counts too: the busier the loop, the shorter our slices.
        self._ends = now + SLICE_S
        return True
