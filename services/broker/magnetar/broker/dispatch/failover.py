"""Failover: all consumers are connected, one of them is active and gets every entry, in order.

Promise: the active consumer depends only on which consumers are connected, not on the order in which they
came. Of the consumers with the best priority level (0 is the highest), sorted by name, partition p has the
one at p modulo their count. So the partitions of a topic spread over its consumers, and a join or a leave
may change the active consumer even when the old one is healthy. A topic without partitions chooses on a
ring: each consumer has 100 points, the murmur3-32 of its name and a number, and the hash of the topic's name
takes the first point at or above it (Apache Pulsar 4.0; messaging contract, Failover).

The delivery decides what a new active consumer gets first, and when.
"""

from __future__ import annotations

from bisect import insort
from functools import lru_cache
from typing import Final, Generic, Protocol, TypeVar

from magnetar.broker.dispatch.candidate import Candidate
from mmh3 import mmh3_32_uintdigest

POINTS: Final = 100
"""Points of each consumer on the ring."""

_RING: Final = 1 << 31
"""Hashes lose their sign bit, as in clients and in Pulsar."""


class NamedCandidate(Candidate, Protocol):
    """A consumer that is chosen by its name."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=NamedCandidate)


class FailoverDispatcher(Generic[C]):
    """Chooses the active consumer of a Failover subscription, and how much it may take."""

    __slots__ = ("_partition_index", "_topic_hash", "active", "consumers")

    def __init__(self, topic: str, partition_index: int = -1) -> None:
        """`topic` is its full name; `partition_index` -1 lets the ring choose."""
        self._partition_index = partition_index
        self._topic_hash = _masked(topic)
        self.consumers: list[C] = []
        """By priority level, then name, then time of joining."""
        self.active: C | None = None
        """The chosen consumer; None while no consumer is connected."""

    def add(self, consumer: C) -> None:
        """Connects a consumer; `active` may change."""
        insort(self.consumers, consumer, key=_rank)
        self._choose()

    def remove(self, consumer: C) -> None:
        """Disconnects a consumer; `active` may change."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._choose()

    def next(self) -> tuple[C, int] | None:
        """Returns the active consumer and how many messages it may take now; None when it can take none."""
        active = self.active
        if active is None:
            return None
        capacity = active.capacity
        return (active, capacity) if capacity > 0 else None

    def _choose(self) -> None:
        if not self.consumers:
            self.active = None
            return
        level = self.consumers[0].priority_level
        best = [each for each in self.consumers if each.priority_level == level]
        if self._partition_index >= 0:
            self.active = best[self._partition_index % len(best)]
        else:
            # A point of two consumers belongs to the later one, as in Pulsar's map of points.
            self.active = min(reversed(best), key=lambda each: _distance(each.name, self._topic_hash))


def _rank(consumer: NamedCandidate) -> tuple[int, str]:
    return consumer.priority_level, consumer.name


@lru_cache(maxsize=4096)
def _distance(name: str, from_hash: int) -> int:
    """Returns the distance on the ring from a hash to the next point of a consumer."""
    return min((_masked(f"{name}{number}") - from_hash) % _RING for number in range(POINTS))


def _masked(text: str) -> int:
    return mmh3_32_uintdigest(text.encode()) & (_RING - 1)
