"""Which segments a run writes anew, so that a run costs by what is new and a view has few segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SMALL_BYTES: Final = 64 << 20
"""Neighbors smaller than this are merged."""

SEGMENTS_MAX: Final = 48
"""Segments of a view; beyond that the cheapest neighbors are merged at any cost."""

MERGED_AT_ONCE: Final = 8
"""Neighbors merged then: the more at once, the less often a message is written again."""

BUDGET_FACTOR: Final = 4
"""Bytes of earlier segments that a run may write anew, by new bytes; what is left is later runs' credit."""

CREDIT_MAX: Final = 16 << 30
"""Bytes of the largest credit."""


class SegmentSize(NamedTuple):
    """The bytes of a segment's entries."""

    byte_length: int
    live_bytes: int

    @property
    def mostly_dead(self) -> bool:
        """Whether more than half of it is dead."""
        return 2 * self.live_bytes < self.byte_length


@dataclass(slots=True)
class SegmentGroup:
    """Consecutive segments, [start, stop) of the earlier list, that become one segment."""

    start: int
    stop: int
    live_bytes: int
    takes_new: bool = False
    """Whether the new messages follow in it."""
    rewrite: bool = False
    """Whether it is a new ledger; without it, a group is one segment that stays."""

    @property
    def cost(self) -> int:
        """Bytes written additionally if the group becomes a part of a new ledger."""
        return 0 if self.rewrite else self.live_bytes


class MergePlan(NamedTuple):
    """All groups in order, without those that hold nothing, and the credit that is left."""

    groups: list[SegmentGroup]
    credit: int


def plan_merges(
    segments: Sequence[SegmentSize], new_bytes: int, tail_bytes: int, credit: int, *, everything: bool = False
) -> MergePlan:
    """Plans the merges of a run that writes `new_bytes`, 0 for nothing, of the `tail_bytes` that were new."""
    budget = BUDGET_FACTOR * tail_bytes + credit
    groups = [
        SegmentGroup(at, at + 1, size.live_bytes) for at, size in enumerate(segments) if size.live_bytes
    ]
    if new_bytes:
        groups.append(SegmentGroup(len(segments), len(segments), new_bytes, takes_new=True, rewrite=True))
    if everything:
        while len(groups) > 1:
            _merge(groups, 0)
        for group in groups:
            group.rewrite = True
        return MergePlan(groups, credit)
    for at in range(len(groups) - 2, -1, -1):
        left, right = groups[at], groups[at + 1]
        cost = left.cost + right.cost
        if max(left.live_bytes, right.live_bytes) < SMALL_BYTES and cost <= budget:
            budget -= cost
            _merge(groups, at)
    for group in groups:
        mostly_dead = not group.rewrite and segments[group.start].mostly_dead
        if mostly_dead and group.cost <= budget:
            budget -= group.cost
            group.rewrite = True
    if len(groups) > SEGMENTS_MAX:
        costs = [sum(group.cost for group in groups[at : at + MERGED_AT_ONCE]) for at in _windows(groups)]
        cheapest = min(_windows(groups), key=costs.__getitem__)
        budget -= costs[cheapest]
        for _ in range(MERGED_AT_ONCE - 1):
            _merge(groups, cheapest)
    return MergePlan(groups, min(max(budget, 0), CREDIT_MAX))


def _windows(groups: list[SegmentGroup]) -> range:
    return range(len(groups) - MERGED_AT_ONCE + 1)


def _merge(groups: list[SegmentGroup], at: int) -> None:
    left, right = groups[at], groups.pop(at + 1)
    groups[at] = SegmentGroup(
        left.start, right.stop, left.live_bytes + right.live_bytes, right.takes_new, rewrite=True
    )
