"""STICKY: consumers choose their slots, and get exactly these.

Both ends of a range are inclusive, in 0 to 65,535. A consumer without ranges, or with an invalid or
overlapping range, is refused. Entries in slots without an owner wait (messaging contract, Key_Shared).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from magnetar.broker.dispatch.key_shared.selector import SLOT_MAX, C, Selector
from magnetar.common.errors import ConsumerAssignFailed


def check_ranges(ranges: Sequence[tuple[int, int]]) -> None:
    """Checks ranges without regard to other consumers. Raises ConsumerAssignFailed for invalid ones."""
    if not ranges:
        raise ConsumerAssignFailed("a STICKY consumer names no hash ranges; give it at least one")
    for first, last in ranges:
        if not 0 <= first <= last <= SLOT_MAX:
            raise ConsumerAssignFailed(
                f"invalid hash range {first}..{last}: 0 <= start <= end <= {SLOT_MAX} is required"
            )
    for one, two in pairwise(sorted(ranges)):
        if two[0] <= one[1]:
            raise ConsumerAssignFailed(f"the consumer's own hash ranges {one} and {two} overlap")


class StickyRanges(Selector[C]):
    """Assigns the ranges that consumers choose."""

    __slots__ = ("_consumers",)

    def __init__(self) -> None:
        super().__init__()
        self._consumers: list[C] = []

    def holders(self, hash_ranges: Sequence[tuple[int, int]]) -> list[C]:
        """Returns the consumers that have some of these slots."""
        return [
            other
            for other in self._consumers
            if any(
                first <= other_last and other_first <= last
                for first, last in hash_ranges
                for other_first, other_last in other.hash_ranges
            )
        ]

    def add(self, consumer: C) -> None:
        check_ranges(consumer.hash_ranges)
        for other in self.holders(consumer.hash_ranges):
            raise ConsumerAssignFailed(
                f"the hash ranges {list(consumer.hash_ranges)} overlap with {list(other.hash_ranges)} of "
                f"consumer {other.name!r}"
            )
        self._consumers.append(consumer)
        self._rebuild()

    def remove(self, consumer: C) -> None:
        self._consumers = [other for other in self._consumers if other is not consumer]
        self._rebuild()

    def _rebuild(self) -> None:
        self.bounds, self.owners = [], []
        claims = [
            (first, last, index)
            for index, each in enumerate(self._consumers)
            for first, last in each.hash_ranges
        ]
        claimed = -1
        for first, last, index in sorted(claims):
            if first > claimed + 1:
                self.bounds.append(first - 1)
                self.owners.append(None)
            self.bounds.append(last)
            self.owners.append(self._consumers[index])
            claimed = last
        if claimed < SLOT_MAX:
            self.bounds.append(SLOT_MAX)
            self.owners.append(None)
