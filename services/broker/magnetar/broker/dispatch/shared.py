"""Shared: every entry to one of many consumers, round robin, without order between them.

Promise: an entry is with one consumer at a time. Turns go round the consumers that have permits, up to
`entries_max` entries a turn; a lower priority level gets messages only while no consumer of a better level
can take any. What a leaving consumer held goes to the others, oldest first, before anything new (Pulsar's
concepts, Shared).
"""

from __future__ import annotations

from bisect import insort
from typing import Generic, TypeVar

from magnetar.broker.dispatch.candidate import Candidate

C = TypeVar("C", bound=Candidate)


class SharedDispatcher(Generic[C]):
    """Decides who gets the next entries of a Shared subscription."""

    __slots__ = ("_entries_max", "_levels", "_turns", "consumers")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self.consumers: list[C] = []
        self._levels: list[tuple[int, list[C]]] = []
        self._turns: dict[int, int] = {}

    def add(self, consumer: C) -> None:
        """A consumer joins at the end of its priority level."""
        insort(self.consumers, consumer, key=_level)
        self._regroup()

    def remove(self, consumer: C) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._regroup()

    def _regroup(self) -> None:
        levels: dict[int, list[C]] = {}
        for consumer in self.consumers:
            levels.setdefault(consumer.priority_level, []).append(consumer)
        self._levels = list(levels.items())
        self._turns = {level: self._turns.get(level, 0) for level in levels}

    def next(self) -> tuple[C, int] | None:
        """The consumer whose turn it is and how many entries the turn has; None when nobody can take any.

        A single consumer needs no turns: it gets as many entries as it has permits.
        """
        if len(self.consumers) == 1:
            consumer = self.consumers[0]
            capacity = consumer.capacity
            return (consumer, capacity) if capacity > 0 else None
        for level, members in self._levels:
            turn = self._turns[level]
            for step in range(len(members)):
                index = (turn + step) % len(members)
                capacity = members[index].capacity
                if capacity > 0:
                    self._turns[level] = (index + 1) % len(members)
                    return members[index], min(capacity, self._entries_max)
        return None


def _level(consumer: Candidate) -> int:
    return consumer.priority_level
