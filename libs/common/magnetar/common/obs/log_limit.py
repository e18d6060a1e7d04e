"""Log rate limit for events that clients can cause at will: one line a second, with a count."""

from __future__ import annotations

from typing import Final

LINES_EVERY_S: Final = 1.0
"""Time in seconds between two lines of one limit."""


class LogLimit:
    """Passes the first event at once, then one per second."""

    __slots__ = ("_events", "_quiet_until")

    def __init__(self) -> None:
        self._events = 0
        self._quiet_until = float("-inf")

    def note(self, now: float, events: int = 1) -> int:
        """Records events at `now`, monotonic seconds.

        Returns the number of events since the last line if a line is due, otherwise 0.
        """
        self._events += events
        if now < self._quiet_until:
            return 0
        self._quiet_until = now + LINES_EVERY_S
        told, self._events = self._events, 0
        return told
