"""Time slices for long work on the event loop, about a millisecond each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SLICE_S: Final = 0.001
"""Duration of a slice in seconds, between two turns of the event loop."""


class Slices:
    """Decides when a slice of work is over; reads the clock only once in `steps_per_look` steps."""

    __slots__ = ("_clock", "_ends", "_steps", "_steps_per_look")

    def __init__(self, clock: Callable[[], float], steps_per_look: int) -> None:
        self._clock = clock
        self._steps_per_look = steps_per_look
        self._steps = 0
        self.begin()

    def begin(self) -> None:
        """Starts a slice."""
        self._ends = self._clock() + SLICE_S

    def over(self) -> bool:
        """Counts one step; returns True when the slice is over and the caller must yield."""
        self._steps += 1
        if self._steps % self._steps_per_look:
            return False
        now = self._clock()
        if now < self._ends:
            return False
        # Time used by other tasks before the next step counts too: on a busy loop slices are shorter.
        self._ends = now + SLICE_S
        return True
