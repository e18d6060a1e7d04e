"""Time as an injected dependency.

Storage, cursors and dispatch use a `Clock`, never the `time` module, so that a simulation controls time.
Timers come from the event loop (`loop.call_later`), which the simulator replaces.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock and monotonic time."""

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970 UTC; may jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Returns seconds since a fixed point; never goes back."""
        ...


class SystemClock:
    """The operating system's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
