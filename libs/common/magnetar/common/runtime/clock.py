"""Time as a parameter.

Storage, cursors and dispatch ask a `Clock`, never the `time` module, so that a simulation decides what time
it is. Timers come from the event loop (`loop.call_later`), which the simulator replaces as a whole.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
