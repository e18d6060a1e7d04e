"""Shared: every entry to one of many consumers, round robin, without order between them.

Promise: an entry is with one consumer at a time. Turns go round the consumers that have permits, up to
`entries_max` entries a turn; a turn is over when something was taken in it, so that messages that come one at
a time go round as well. A lower priority level gets messages only while no consumer of a better level can
take any. What a leaving consumer held goes to the others, oldest first, before anything new (Pulsar's
concepts, Shared).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Generic, TypeVar

from magnetar.broker.dispatch.candidate import Candidate

C = TypeVar("C", bound=Candidate)


class SharedDispatcher(Generic[C]):
    """Decides who gets the next entries of a Shared subscription."""

    __slots__ = ("_chosen_from", "_entries_max", "_passed", "_rounds", "consumers")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self.consumers: list[C] = []
        """By priority level, then time of joining."""
        self._rounds: list[deque[C]] = []
        """The consumers of each priority level, the best level first, in the order of their turns."""
        self._chosen_from: deque[C] = deque()
        self._passed = 0
        # The round of the last choice, and how many of it have had their turn once the choice is taken.

    def add(self, consumer: C) -> None:
        """A consumer joins at the end of its priority level's round."""
        insort(self.consumers, consumer, key=_level)
        for members in self._rounds:
            if _level(members[0]) == _level(consumer):
                members.append(consumer)
                return
        insort(self._rounds, deque((consumer,)), key=lambda members: _level(members[0]))

    def remove(self, consumer: C) -> None:
        """A consumer leaves; the turns of the others stay in their order."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            for members in self._rounds:
                if consumer in members:
                    members.remove(consumer)
            self._rounds = [members for members in self._rounds if members]

    def next(self) -> tuple[C, int] | None:
        """The consumer whose turn it is and how many entries the turn has; None when none can take any.

        The answer stays the same until `took` says that the turn is over. A single consumer needs no turns:
        it gets as many entries as it has permits.
        """
        if len(self.consumers) == 1:
            consumer = self.consumers[0]
            capacity = consumer.capacity
            return (consumer, capacity) if capacity > 0 else None
        for members in self._rounds:
            for passed, consumer in enumerate(members, 1):
                capacity = consumer.capacity
                if capacity > 0:
                    self._chosen_from, self._passed = members, passed
                    return consumer, min(capacity, self._entries_max)
        return None

    def took(self) -> None:
        """The consumer that `next` chose was given something, which ends its turn."""
        self._chosen_from.rotate(-self._passed)


def _level(consumer: Candidate) -> int:
    return consumer.priority_level
