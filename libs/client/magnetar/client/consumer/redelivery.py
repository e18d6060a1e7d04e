"""Entries to ask for again: negative acknowledgements, and messages not acknowledged in time.

An entry is the unit of redelivery, so that messages of one batch count as one. The caller gives the time, in
seconds of a monotonic clock, and sends RedeliverUnacknowledgedMessages with what is returned.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Position = tuple[int, int]
"""The ids of a ledger and of an entry."""

NEGATIVE_ACK_S: Final = 60.0
"""Default delay in seconds before a negatively acknowledged message is redelivered."""

ACK_TIMEOUT_S_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class RedeliveryDelay:
    """A delay that grows with the number of redeliveries; `multiplier` 1 keeps it constant."""

    min_s: float = NEGATIVE_ACK_S
    max_s: float = NEGATIVE_ACK_S
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        """Checks the values. Raises ValueError."""
        if not 0 <= self.min_s <= self.max_s or self.multiplier < 1:
            raise ValueError(
                f"invalid delay {self.min_s:g}..{self.max_s:g} s x {self.multiplier:g}: "
                "give 0 <= min_s <= max_s, and a multiplier of at least 1"
            )

    def delay_s(self, redelivery_count: int) -> float:
        """Returns the delay before the next redelivery of a message redelivered so many times."""
        try:
            # As a float: a large power of a whole number would be computed to its last digit.
            return min(self.min_s * float(self.multiplier) ** redelivery_count, self.max_s)
        except OverflowError:
            return self.max_s


class NegativeAcknowledgements:
    """Entries with a negative acknowledgement, by the time of their redelivery."""

    __slots__ = ("_delay", "_due", "_heap", "_order")

    def __init__(self, delay: RedeliveryDelay | None = None) -> None:
        self._delay = delay or RedeliveryDelay()
        self._due: dict[Position, tuple[float, int, Sequence[Position]]] = {}
        self._heap: list[tuple[float, int, Sequence[Position]]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def due_at(self) -> float | None:
        """The time of the next redelivery; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, positions: Sequence[Position], redelivery_count: int, now: float) -> None:
        """Adds an entry, or all chunks of a message. A second call for the same entry changes nothing."""
        if positions[0] in self._due:
            return
        item = now + self._delay.delay_s(redelivery_count), next(self._order), positions
        self._due[positions[0]] = item
        heapq.heappush(self._heap, item)

    def discard(self, position: Position) -> None:
        """Cancels the redelivery of an entry, which was acknowledged meanwhile."""
        if self._due.pop(position, None) is not None:
            self._drop_cancelled()

    def take_due(self, now: float) -> list[Position]:
        """Returns the entries to redeliver, and forgets them."""
        due: list[Position] = []
        while self._heap and self._heap[0][0] <= now:
            positions = heapq.heappop(self._heap)[2]
            del self._due[positions[0]]
            due += positions
            self._drop_cancelled()
        return due

    def clear(self) -> None:
        """Forgets all: a new connection or a seek delivers again anyway."""
        self._due.clear()
        self._heap.clear()

    def _drop_cancelled(self) -> None:
        """Keeps the first item of the heap valid, and the heap within twice the entries that count."""
        if len(self._heap) > 2 * len(self._due):
            self._heap = list(self._due.values())
            heapq.heapify(self._heap)
        while self._heap and self._due.get(self._heap[0][2][0]) is not self._heap[0]:
            heapq.heappop(self._heap)


class AckTimeouts:
    """Entries taken by the application and not acknowledged, in groups by the tick of their arrival.

    An entry expires between `timeout_s` and one tick later. Adding and removing cost one dictionary access.
    """

    __slots__ = ("_group_of", "_groups", "_tick_s", "_timeout_s")

    def __init__(self, timeout_s: float, tick_s: float = 1.0) -> None:
        """Raises ValueError for a timeout below 1 s, or an invalid tick."""
        if timeout_s < ACK_TIMEOUT_S_MIN:
            raise ValueError(f"invalid ack timeout {timeout_s:g} s: give at least {ACK_TIMEOUT_S_MIN:g} s")
        if not 0 < tick_s <= timeout_s:
            raise ValueError(f"invalid tick {tick_s:g} s: give more than 0 s, and at most {timeout_s:g} s")
        self._timeout_s = timeout_s
        self._tick_s = tick_s
        self._groups: deque[tuple[float, dict[Position, None]]] = deque()
        self._group_of: dict[Position, dict[Position, None]] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    @property
    def due_at(self) -> float | None:
        """The time at which to call `take_due` next; None if no entry waits."""
        while self._groups and not self._groups[0][1]:
            self._groups.popleft()
        return self._groups[0][0] if self._groups else None

    def add(self, position: Position, now: float) -> None:
        """Starts the time of an entry, unless it runs already."""
        if position in self._group_of:
            return
        due = now + self._timeout_s
        if not self._groups or self._groups[-1][0] < due:
            # The group takes what arrives within a tick; none of it may expire early.
            self._groups.append((due + self._tick_s, {}))
        group = self._groups[-1][1]
        group[position] = None
        self._group_of[position] = group

    def discard(self, position: Position) -> None:
        """Stops the time of an entry: it was acknowledged, positively or negatively."""
        group = self._group_of.pop(position, None)
        if group is not None:
            del group[position]

    def discard_through(self, last: Position) -> None:
        """Stops the time of all entries up to a cumulative acknowledgement."""
        for position in [each for each in self._group_of if each <= last]:
            self.discard(position)

    def take_due(self, now: float) -> list[Position]:
        """Returns the entries that expired, and forgets them."""
        due: list[Position] = []
        while self._groups and self._groups[0][0] <= now:
            due += self._groups.popleft()[1]
        for position in due:
            del self._group_of[position]
        return due

    def clear(self) -> None:
        """Forgets all, after the connection ended or a seek."""
        self._groups.clear()
        self._group_of.clear()
