"""Keeps what a client can cause at will from filling the log: a line a second, with how often it happened."""

from __future__ import annotations

from typing import Final

LINES_EVERY_S: Final = 1.0
"""Between two lines of one limit."""


class LogLimit:
    """Lets the first event through at once, and then one a second."""

    __slots__ = ("_events", "_quiet_until")

    def __init__(self) -> None:
        self._events = 0
        self._quiet_until = float("-inf")

    def note(self, now: float, events: int = 1) -> int:
        """So much happened at `now`, monotonic seconds.

        Returns how often since the last line, where a line is due; 0 where it is not.
        """
        self._events += events
        if now < self._quiet_until:
            return 0
        self._quiet_until = now + LINES_EVERY_S
        told, self._events = self._events, 0
        return told
