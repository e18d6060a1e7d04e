"""AUTO_SPLIT by hash range: each consumer owns one range of slots; a newcomer halves the largest one.

The first consumer owns all slots. A newcomer takes the lower half of the largest range (the lowest of equal
ones) and its owner keeps the upper half. A leaver's range merges into its right neighbor, the rightmost one
into its left neighbor. So one existing consumer is affected by a change, and ranges are uneven (messaging
contract, Key_Shared). As in Apache Pulsar 4.0, a range is what follows its left neighbor's last slot up to
its own, and the whole counts as 65,536 long: 0 to 32,768 and 32,769 to 65,535 are its halves.
"""

from __future__ import annotations

from magnetar.broker.dispatch.key_shared.selector import SLOT_MAX, C, Selector
from magnetar.broker.dispatch.key_shared.sticky_key import SLOTS
from magnetar.common.errors import ConsumerAssignFailed


class HashRanges(Selector[C]):
    """Gives each consumer one range."""

    __slots__ = ()

    def add(self, consumer: C) -> None:
        if self.owners[0] is None:
            self.owners = [consumer]
            return
        ends = [*self.bounds[:-1], SLOTS]
        widths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        widest = max(widths)
        index = widths.index(widest)
        middle = ends[index] - widest + widest // 2
        if widest < 2 or middle == SLOT_MAX:
            raise ConsumerAssignFailed(
                f"every one of the {len(self.owners)} consumers has a single slot; there is none left to give"
            )
        self.bounds.insert(index, middle)
        self.owners.insert(index, consumer)

    def remove(self, consumer: C) -> None:
        if consumer not in self.owners:
            return
        index = self.owners.index(consumer)
        if len(self.owners) == 1:
            self.owners = [None]
            return
        del self.owners[index], self.bounds[index]
        self.bounds[-1] = SLOT_MAX
