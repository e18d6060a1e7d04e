"""One byte budget for unconfirmed publishes: per connection and for the whole broker.

A connection over its share, or any publishing connection while the broker is over its budget, is not read on
until half of what was over is confirmed. So a flood fills the client's socket, not the broker's memory.
"""

from __future__ import annotations

from collections.abc import Callable


class PublishBudget:
    """Counts bytes that were taken from producers and are not confirmed yet, over all connections."""

    __slots__ = ("_bytes_max", "_pending", "_waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pending = 0
        self._waiting: dict[int, Callable[[], None]] = {}

    @property
    def pending_bytes(self) -> int:
        return self._pending

    @property
    def spent(self) -> bool:
        return self._pending >= self._bytes_max

    def add(self, byte_count: int) -> None:
        """Bytes were taken (positive) or settled (negative); wakes waiting connections at half the budget."""
        self._pending += byte_count
        if self._waiting and self._pending <= self._bytes_max // 2:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting.values():
                resume()

    def wait(self, who: int, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room again; `who` (an id) waits only once."""
        self._waiting[who] = resume

    def forget(self, who: int) -> None:
        self._waiting.pop(who, None)
