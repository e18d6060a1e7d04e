"""Key_Shared: every entry goes to the consumer that owns its slot, in order within a slot.

Promise: each key is with one consumer at a time, including redeliveries, and its messages are delivered in
order. The selector assigns slots when consumers connect or leave. A slot that moves waits until its previous
owner has acknowledged the entries that it holds, unless out-of-order delivery is allowed or consumers choose
their slots themselves (messaging contract, Key_Shared).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from magnetar.broker.dispatch.candidate import Candidate
from magnetar.broker.dispatch.key_shared.consistent_hashing import ConsistentHashing
from magnetar.broker.dispatch.key_shared.draining import DrainingSlots
from magnetar.broker.dispatch.key_shared.hash_ranges import HashRanges
from magnetar.broker.dispatch.key_shared.selector import Selector, SlotOwner
from magnetar.broker.dispatch.key_shared.sticky_key import slots_of
from magnetar.broker.dispatch.key_shared.sticky_ranges import StickyRanges


class KeySharedCandidate(Candidate, SlotOwner, Protocol):
    """A consumer that may own slots."""

    @property
    def sticky(self) -> bool:
        """True when it chooses its slots itself."""
        ...

    @property
    def allow_out_of_order(self) -> bool:
        """True when it gets its slots at once."""
        ...


C = TypeVar("C", bound=KeySharedCandidate)


class KeySharedDispatcher(Generic[C]):
    """The consumers of a Key_Shared subscription and the slots that each of them owns."""

    __slots__ = ("consumers", "draining", "drains", "selector")

    def __init__(self, first: C, *, consistent_hashing: bool, points: int) -> None:
        """Takes the options that all consumers share from `first`, which is not added yet."""
        self.consumers: list[C] = []
        self.selector: Selector[C]
        if first.sticky:
            self.selector = StickyRanges()
        elif consistent_hashing:
            self.selector = ConsistentHashing(points)
        else:
            self.selector = HashRanges()
        self.drains = not (first.sticky or first.allow_out_of_order)
        """True when a slot that moves waits for its old owner."""
        self.draining: DrainingSlots[C] = DrainingSlots()
        """The slots that wait for their old owner; the delivery keeps them up to date."""

    def add(self, consumer: C) -> None:
        """Connects a consumer with its slots. Raises ConsumerAssignFailed when it cannot have any."""
        self.selector.add(consumer)
        self.consumers.append(consumer)

    def remove(self, consumer: C) -> None:
        """Disconnects a consumer; its slots go to others."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.selector.remove(consumer)

    def holders(self, hash_ranges: Sequence[tuple[int, int]]) -> list[C]:
        """Returns the consumers whose ranges overlap with the ranges of another consumer."""
        return self.selector.holders(hash_ranges) if isinstance(self.selector, StickyRanges) else []

    def next_for(self, entry: bytes) -> tuple[C, int] | None:
        """Returns the owner of an entry and how many messages it may take now; None when it can take none."""
        owner = self.selector.owner(slots_of((entry,))[0])
        if owner is None:
            return None
        capacity = owner.capacity
        return (owner, capacity) if capacity > 0 else None
