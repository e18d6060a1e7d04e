"""The base of all ways of dividing the slots among consumers: ranges, each with an owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar

from magnetar.broker.dispatch.key_shared.sticky_key import SLOTS

SLOT_MAX: Final = SLOTS - 1


class SlotOwner(Protocol):
    """The part of a consumer that a selector needs."""

    @property
    def name(self) -> str: ...
    @property
    def hash_ranges(self) -> Sequence[tuple[int, int]]:
        """The ranges of slots that it requests, both ends inclusive; empty unless it is STICKY."""
        ...


C = TypeVar("C", bound=SlotOwner)


class Selector(ABC, Generic[C]):
    """Maps each slot to at most one owner; subclasses decide which slots move at a change."""

    __slots__ = ("bounds", "owners")

    def __init__(self) -> None:
        self.bounds: list[int] = [SLOT_MAX]
        """The last slot of each range, ascending; the ranges cover 0 to 65,535 without a gap."""
        self.owners: list[C | None] = [None]
        """The owner of each range; None for slots without an owner."""

    @abstractmethod
    def add(self, consumer: C) -> None:
        """Gives a consumer its slots. Raises ConsumerAssignFailed, and changes nothing, if there are none."""

    @abstractmethod
    def remove(self, consumer: C) -> None:
        """Divides a consumer's slots among the others."""

    def owner(self, slot: int) -> C | None:
        """Returns the consumer that owns the slot."""
        return self.owners[bisect_left(self.bounds, slot)]

    def ranges(self) -> dict[C, list[tuple[int, int]]]:
        """Returns the slots of each owner as ranges, both ends inclusive; adjacent ones are joined."""
        ranges: defaultdict[C, list[tuple[int, int]]] = defaultdict(list)
        first = 0
        for last, owner in zip(self.bounds, self.owners, strict=True):
            if owner is not None:
                owned = ranges[owner]
                if owned and owned[-1][1] == first - 1:
                    owned[-1] = (owned[-1][0], last)
                else:
                    owned.append((first, last))
            first = last + 1
        return ranges
