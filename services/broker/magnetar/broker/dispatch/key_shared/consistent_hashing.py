"""AUTO_SPLIT by consistent hashing: each consumer has many points on a ring, and owns the slots before them.

A slot belongs to the first point at or above it; slots after the last point belong to the first. Points are
the hashes of a consumer's name, its number among consumers of this name, and the point's number, separated by
zero bytes. Pulsar's documents concatenate name and number: `worker-1` and `worker-11` would then share
points, and the later one would own almost nothing. The earliest consumer owns a shared point, and the next
one takes it over when the owner leaves. So a new consumer takes a few slots from each consumer, the slots of
a leaving one spread over all others, and no slot moves between the others (messaging contract, Key_Shared;
Apache Pulsar 4.0).
"""

from __future__ import annotations

from bisect import bisect_left

from magnetar.broker.dispatch.key_shared.selector import SLOT_MAX, C, Selector
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key


class ConsistentHashing(Selector[C]):
    """Gives each consumer nearly `points` ranges."""

    __slots__ = ("_numbers", "_points", "_ring")

    def __init__(self, points: int) -> None:
        super().__init__()
        self._points = points
        self._ring: dict[int, list[C]] = {}
        self._numbers: dict[str, dict[int, C]] = {}

    def add(self, consumer: C) -> None:
        same_name = self._numbers.setdefault(consumer.name, {})
        number = next(each for each in range(len(same_name) + 1) if each not in same_name)
        same_name[number] = consumer
        for point in self._points_of(consumer.name, number):
            self._ring.setdefault(point, []).append(consumer)
            self._look_at(point)
        self._wrap()

    def remove(self, consumer: C) -> None:
        same_name = self._numbers.get(consumer.name, {})
        number = next((number for number, each in same_name.items() if each is consumer), None)
        if number is None:
            return
        del same_name[number]
        if not same_name:
            del self._numbers[consumer.name]
        for point in self._points_of(consumer.name, number):
            self._ring[point].remove(consumer)
            if not self._ring[point]:
                del self._ring[point]
            self._look_at(point)
        self._wrap()

    def _points_of(self, name: str, number: int) -> list[int]:
        return [slot_of_key(f"{name}\0{number}\0{each}".encode()) for each in range(self._points)]

    def _look_at(self, point: int) -> None:
        """Updates the owner of one point; most points stay when one of a thousand consumers changes."""
        index = bisect_left(self.bounds, point)
        owner = self._ring.get(point, (None,))[0]
        if self.bounds[index] == point and (owner is not None or point == SLOT_MAX):
            self.owners[index] = owner
        elif owner is not None:
            self.bounds.insert(index, point)
            self.owners.insert(index, owner)
        else:
            del self.bounds[index], self.owners[index]

    def _wrap(self) -> None:
        """Gives the slots after the last point to the owner of the first."""
        if SLOT_MAX not in self._ring:
            self.owners[-1] = self.owners[0] if len(self.owners) > 1 else None
