"""The memory that unconfirmed messages of all producers of a client may take."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from magnetar.client.errors import MemoryLimitReached


class MemoryLimit:
    """Counts bytes of messages from their send to their receipt; 0 bytes: no limit."""

    __slots__ = ("_waiting", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a message may be taken; the last one may exceed the limit, so that any size passes."""
        return self.used_bytes < self.limit_bytes or not self.limit_bytes

    def take(self, byte_length: int) -> None:
        """Counts a message. Raises MemoryLimitReached when there is no room."""
        if self.used_bytes >= self.limit_bytes > 0:
            raise MemoryLimitReached(
                f"unconfirmed messages take {self.used_bytes} bytes, the client may use {self.limit_bytes}: "
                "wait for receipts (await send waits by itself), or raise memory_limit_bytes"
            )
        self.used_bytes += byte_length

    def release(self, byte_length: int) -> None:
        """Counts a message no more, and wakes those that wait for room."""
        self.used_bytes -= byte_length
        if self._waiting and self.has_room:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting.values():
                wake()

    def when_released(self, owner: Hashable, wake: Callable[[], None]) -> None:
        """Calls `wake` once when there is room again; the last one that an owner gave."""
        self._waiting[owner] = wake
