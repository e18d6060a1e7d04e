"""Shared: every entry to one of many consumers, round robin, without order between them.

Promise: an entry is with one consumer at a time. Consumers with permits take turns of up to `entries_max`
entries; a turn ends when something was taken in it, so messages that come one at a time go round as well. A
lower priority level gets messages only while no consumer of a better level can take any. The entries of a
leaving consumer go to the others, oldest first, before anything new (Pulsar's concepts, Shared).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Generic, TypeVar

from magnetar.broker.dispatch.candidate import Candidate

C = TypeVar("C", bound=Candidate)


class SharedDispatcher(Generic[C]):
    """Chooses the consumer of the next entries of a Shared subscription."""

    __slots__ = ("_chosen_from", "_entries_max", "_passed", "_rounds", "consumers")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self.consumers: list[C] = []
        """By priority level, then time of joining."""
        self._rounds: list[deque[C]] = []
        """The consumers of each priority level, the best level first, in the order of their turns."""
        self._chosen_from: deque[C] = deque()
        self._passed = 0
        # The round of the last choice, and how many of its members have had their turn once that is taken.

    def add(self, consumer: C) -> None:
        """Connects a consumer at the end of its priority level's round."""
        insort(self.consumers, consumer, key=_level)
        for members in self._rounds:
            if _level(members[0]) == _level(consumer):
                members.append(consumer)
                return
        insort(self._rounds, deque((consumer,)), key=lambda members: _level(members[0]))

    def remove(self, consumer: C) -> None:
        """Disconnects a consumer; the others keep the order of their turns."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            for members in self._rounds:
                if consumer in members:
                    members.remove(consumer)
            self._rounds = [members for members in self._rounds if members]

    def next(self) -> tuple[C, int] | None:
        """Returns the consumer whose turn it is and the entries of the turn; None when none can take any.

        The choice stays the same until `took` ends the turn. A single consumer needs no turns: it gets as
        many entries as it has permits.
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
        """Ends the turn of the consumer that `next` chose, after it got something."""
        self._chosen_from.rotate(-self._passed)


def _level(consumer: Candidate) -> int:
    return consumer.priority_level
