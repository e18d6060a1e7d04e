"""Consumers come and go at random: each slot has one owner, and only what must move moves."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.dispatch.key_shared.consistent_hashing import ConsistentHashing
from magnetar.broker.dispatch.key_shared.hash_ranges import HashRanges
from magnetar.broker.dispatch.key_shared.selector import Selector
from magnetar.broker.dispatch.key_shared.sticky_key import slot_of_key
from magnetar.broker.dispatch.key_shared.sticky_ranges import StickyRanges
from magnetar.common.errors import ConsumerAssignFailed

from tests.examples import examples
from tests.unit.broker.dispatch.key_shared.fakes import Fake

POINTS = 5


class Machine(RuleBasedStateMachine):
    """The consumers in order of joining; `owners` is slot -> owner for a sample of slots."""

    selector: Selector[Fake]

    @initialize(slots=st.lists(st.integers(0, 65_535), min_size=5, max_size=20))
    def start(self, slots: list[int]) -> None:
        self.consumers: list[Fake] = []
        self.selector = self.make()
        self.slots = sorted({0, 1, 32_768, 32_769, 65_535, *slots})
        self.before: dict[int, Fake | None] = {}

    def make(self) -> Selector[Fake]:
        raise NotImplementedError

    def owners(self) -> dict[int, Fake | None]:
        return {slot: self.selector.owner(slot) for slot in self.slots}

    def join(self, consumer: Fake) -> None:
        before = self.owners()
        self.selector.add(consumer)
        self.consumers.append(consumer)
        for slot, owner in self.owners().items():
            assert owner in (before[slot], consumer), "nothing moves between those that were there"

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        before = self.owners()
        self.selector.remove(consumer)
        self.consumers.remove(consumer)
        for slot, owner in self.owners().items():
            assert owner is before[slot] or before[slot] is consumer, "only the leaver's slots move"

    @invariant()
    def ranges_cover_every_slot_once(self) -> None:
        bounds = self.selector.bounds
        assert bounds == sorted(set(bounds))
        assert bounds[-1] == 65_535
        assert len(bounds) == len(self.selector.owners)
        ranges = self.selector.ranges()
        assert ranges.keys() <= set(self.consumers)
        for consumer, owned in ranges.items():
            for first, last in owned:
                assert self.selector.owner(first) is self.selector.owner(last) is consumer
        covered = sum(last - first + 1 for owned in ranges.values() for first, last in owned)
        unowned = sum(
            last - first
            for first, last, owner in zip([-1, *bounds], bounds, self.selector.owners, strict=False)
            if owner is None
        )
        assert covered + unowned == 65_536

    @invariant()
    def the_reference_agrees(self) -> None:
        for slot, owner in self.owners().items():
            assert owner is self.expected(slot)

    def expected(self, slot: int) -> Fake | None:
        raise NotImplementedError


class HashRangesMachine(Machine):
    """The reference: a list of [first, last, owner], halved and merged as the contract tells it."""

    def make(self) -> Selector[Fake]:
        self.ranges: list[tuple[int, int, Fake]] = []  # (what is before the range, its last slot, its owner)
        return HashRanges()

    @rule()
    def come(self) -> None:
        consumer = Fake(f"c{len(self.consumers)}")
        self.join(consumer)
        if not self.ranges:
            self.ranges = [(0, 65_536, consumer)]
            return
        start, end, owner = max(self.ranges, key=lambda each: (each[1] - each[0], -each[0]))
        at = self.ranges.index((start, end, owner))
        middle = (start + end) // 2
        self.ranges[at : at + 1] = [(start, middle, consumer), (middle, end, owner)]

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        super().leave(data)
        at = next(at for at, (_, _, owner) in enumerate(self.ranges) if owner not in self.consumers)
        start, end, _ = self.ranges.pop(at)
        if at < len(self.ranges):
            self.ranges[at] = (start, *self.ranges[at][1:])
        elif self.ranges:
            self.ranges[-1] = (self.ranges[-1][0], end, self.ranges[-1][2])

    def expected(self, slot: int) -> Fake | None:
        return next((owner for _, end, owner in self.ranges if slot <= end), None)


class ConsistentHashingMachine(Machine):
    """The reference: all points of all consumers in order of joining, searched one by one."""

    def make(self) -> Selector[Fake]:
        self.points: list[tuple[int, Fake]] = []
        return ConsistentHashing(POINTS)

    @rule(name=st.sampled_from("abcdefgh"))
    def come(self, name: str) -> None:
        if any(each.name == name for each in self.consumers):
            return
        consumer = Fake(name)
        self.join(consumer)
        self.points += [(slot_of_key(f"{name}\0{0}\0{n}".encode()), consumer) for n in range(POINTS)]

    @rule()
    def one_more_of_a_name(self) -> None:
        self.join(Fake("same"))
        # Its points are the selector's own affair; that they are fair and its own is tested elsewhere.
        consumer = self.consumers.pop()
        self.selector.remove(consumer)

    def expected(self, slot: int) -> Fake | None:
        self.points = [each for each in self.points if each[1] in self.consumers]
        following = [each for each in self.points if each[0] >= slot] or self.points
        return min(following, key=lambda each: each[0], default=(0, None))[1]


class StickyRangesMachine(Machine):
    """The reference: everybody's ranges, looked through one by one."""

    def make(self) -> Selector[Fake]:
        return StickyRanges()

    @rule(
        ranges=st.lists(
            st.tuples(st.integers(-1, 65_536), st.integers(0, 40_000)).map(lambda it: (it[0], it[0] + it[1])),
            max_size=3,
        )
    )
    def come(self, ranges: list[tuple[int, int]]) -> None:
        consumer = Fake(f"c{len(self.consumers)}", tuple(ranges))
        claimed = [*ranges, *(each for other in self.consumers for each in other.hash_ranges)]
        overlap = any(
            one is not two and one[0] <= two[1] and two[0] <= one[1] for one in ranges for two in claimed
        )
        if not ranges or overlap or any(first < 0 or last > 65_535 for first, last in ranges):
            with pytest.raises(ConsumerAssignFailed):
                self.selector.add(consumer)
        else:
            self.join(consumer)

    def expected(self, slot: int) -> Fake | None:
        return next(
            (
                each
                for each in self.consumers
                if any(first <= slot <= last for first, last in each.hash_ranges)
            ),
            None,
        )


@settings(max_examples=examples(60), deadline=None)
@given(names=st.permutations([f"worker-{number}" for number in range(24)]), count=st.integers(2, 24))
def test_shares_are_fair_whatever_the_names_and_the_order_of_joining(names: list[str], count: int) -> None:
    """With 100 points each, a tenth of a share is the usual difference."""
    ring: ConsistentHashing[Fake] = ConsistentHashing(100)
    for name in names[:count]:
        ring.add(Fake(name))
    for consumer, ranges in ring.ranges().items():
        share = sum(last - first + 1 for first, last in ranges) * count / 65_536
        assert 0.6 < share < 1.5, f"{consumer.name} has {share:.2f} of an even share"


TestHashRanges = HashRangesMachine.TestCase
TestHashRanges.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestConsistentHashing = ConsistentHashingMachine.TestCase
TestConsistentHashing.settings = TestHashRanges.settings
TestStickyRanges = StickyRangesMachine.TestCase
TestStickyRanges.settings = TestHashRanges.settings
