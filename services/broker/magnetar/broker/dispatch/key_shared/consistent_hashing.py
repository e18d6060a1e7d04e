"""AUTO_SPLIT by consistent hashing: each consumer has many points on a ring, and the slots before them.

A slot belongs to the first point at or above it, after the last one to the first. Points are the slots of
`<name>1`, `<name>2` ... `<name>100`; a further consumer of a name that is taken appends the number of its
joining to each. Of consumers on one point the first comer has it, the next one when he leaves. So a newcomer
takes a little from everybody, a leaver's slots spread over everybody, and nothing moves between the others
(messaging contract, Key_Shared: Pulsar's documents, with collisions as Apache Pulsar 4.0 solves them).
"""

from __future__ import annotations

from magnetar.broker.dispatch.key_shared.selector import SLOT_MAX, C, Selector
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key


class ConsistentHashing(Selector[C]):
    """`points` ranges a consumer, nearly."""

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
        self._rebuild()

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
        self._rebuild()

    def _points_of(self, name: str, number: int) -> list[int]:
        # The separator keeps the points of one name's consumers apart: `c` + `11` is not `c1` + `1`.
        suffix = f"\0{number}" if number else ""
        return [slot_of_key(f"{name}{each}{suffix}".encode()) for each in range(1, self._points + 1)]

    def _rebuild(self) -> None:
        self.bounds = sorted(self._ring)
        self.owners = [self._ring[point][0] for point in self.bounds]
        if not self.bounds or self.bounds[-1] != SLOT_MAX:
            self.owners.append(self.owners[0] if self.owners else None)
            self.bounds.append(SLOT_MAX)
