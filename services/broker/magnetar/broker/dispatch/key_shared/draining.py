"""Draining slots: slots that moved to a new owner while their previous owner still holds messages of them.

Each key is with one consumer at a time. When a slot moves while its previous owner has unacknowledged entries
of it, the slot waits until that consumer has acknowledged or returned them or has disconnected; all other
slots continue. A slot that moves back to the consumer that holds its entries stops waiting at once (PIP-379).
The draining slots follow from the holders and owners of slots, so they are computed again at each change of
owners; between changes the counts only decrease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C")


@dataclass(slots=True)
class DrainingSlot(Generic[C]):
    """A slot that waits for the consumer `holder`."""

    holder: C
    unacked: int
    """Entries of the slot that the holder has not acknowledged; never 0."""
    blocked_attempts: int = 0
    """How often an entry was held back because of it."""
    since_ms: int = 0
    """When it began to wait for this holder, ms since 1970 UTC; 0: not known."""


class DrainingSlots(Generic[C]):
    """The draining slots of one subscription."""

    __slots__ = ("_cleared_by", "cleared", "slots")

    def __init__(self) -> None:
        self.slots: dict[int, DrainingSlot[C]] = {}
        self.cleared = 0
        """Slots that drained, or moved back, since the first consumer connected."""
        self._cleared_by: dict[C, int] = {}

    def owners_changed(
        self,
        held: Iterable[tuple[C, Mapping[int, int]]],
        owner: Callable[[int], C | None],
        now_ms: int = 0,
    ) -> None:
        """Computes the draining slots. `held`: each consumer with its unacknowledged entries by slot."""
        before, self.slots = self.slots, {}
        present = []
        for consumer, counts in held:
            present.append(consumer)
            for slot, unacked in counts.items():
                if owner(slot) is consumer:
                    continue
                assert slot not in self.slots, "a slot is with one consumer at a time"
                known = before.get(slot)
                attempts, since_ms = 0, now_ms
                if known is not None and known.holder is consumer:
                    attempts, since_ms = known.blocked_attempts, known.since_ms
                self.slots[slot] = DrainingSlot(consumer, unacked, attempts, since_ms)
        for slot, was in before.items():
            now = self.slots.get(slot)
            if now is None or now.holder is not was.holder:
                self._count_cleared(was.holder)
        self._cleared_by = {consumer: self._cleared_by.get(consumer, 0) for consumer in present}

    def settled(self, consumer: C, slots: Iterable[int]) -> list[int]:
        """Counts down one entry of the consumer in each of these slots; returns the slots that are
        drained.
        """
        free: list[int] = []
        for slot in slots:
            draining = self.slots.get(slot)
            if draining is None or draining.holder is not consumer:
                continue
            draining.unacked -= 1
            if not draining.unacked:
                del self.slots[slot]
                self._count_cleared(consumer)
                free.append(slot)
        return free

    def by_holder(self) -> dict[C, dict[int, DrainingSlot[C]]]:
        """Returns the slots that wait for each consumer, without consumers that none waits for."""
        waiting: defaultdict[C, dict[int, DrainingSlot[C]]] = defaultdict(dict)
        for slot, each in self.slots.items():
            waiting[each.holder][slot] = each
        return waiting

    def cleared_by(self, consumer: C) -> int:
        """Returns how many slots stopped waiting for this consumer."""
        return self._cleared_by.get(consumer, 0)

    def _count_cleared(self, holder: C) -> None:
        self.cleared += 1
        self._cleared_by[holder] = self._cleared_by.get(holder, 0) + 1
