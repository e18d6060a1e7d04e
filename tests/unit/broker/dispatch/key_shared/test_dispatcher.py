from __future__ import annotations

from dataclasses import dataclass

import pytest
from magnetar.broker.dispatch.key_shared.consistent_hashing import ConsistentHashing
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.broker.dispatch.key_shared.hash_ranges import HashRanges
from magnetar.broker.dispatch.key_shared.sticky_ranges import StickyRanges
from magnetar.broker.reason import Reason
from magnetar.common.errors import ConsumerAssignFailed


@dataclass(eq=False)
class Fake:
    name: str
    hash_ranges: tuple[tuple[int, int], ...] = ()
    sticky: bool = False
    allow_out_of_order: bool = False
    capacity: int = 5
    priority_level: int = 0
    held_back_by: Reason | None = None


def dispatcher_of(first: Fake, *, consistent_hashing: bool = True) -> KeySharedDispatcher[Fake]:
    dispatcher = KeySharedDispatcher(first, consistent_hashing=consistent_hashing, points=10)
    dispatcher.add(first)
    return dispatcher


def test_the_first_consumer_says_how_slots_are_divided() -> None:
    assert isinstance(dispatcher_of(Fake("a")).selector, ConsistentHashing)
    assert isinstance(dispatcher_of(Fake("a"), consistent_hashing=False).selector, HashRanges)
    sticky = dispatcher_of(Fake("a", ((0, 9),), sticky=True))
    assert isinstance(sticky.selector, StickyRanges)
    assert not sticky.drains
    assert dispatcher_of(Fake("a")).drains
    assert not dispatcher_of(Fake("a", allow_out_of_order=True)).drains


def test_an_entry_goes_to_the_owner_of_its_slot_if_that_one_can_take_it() -> None:
    # Bytes that are no entry have the slot of no key, 48,803.
    owner = Fake("owner", ((48_803, 48_803),), sticky=True)
    dispatcher = dispatcher_of(owner)
    assert dispatcher.next_for(b"") == (owner, 5)
    owner.capacity = 0
    assert dispatcher.next_for(b"") is None
    dispatcher.remove(owner)
    assert dispatcher.next_for(b"") is None, "nobody owns it"


def test_a_consumer_that_is_refused_is_not_connected() -> None:
    first = Fake("first", ((0, 9),), sticky=True)
    dispatcher = dispatcher_of(first)
    with pytest.raises(ConsumerAssignFailed):
        dispatcher.add(Fake("second", ((9, 10),), sticky=True))
    assert dispatcher.consumers == [first]
    assert dispatcher.holders(((9, 10),)) == [first]
    assert dispatcher.holders(((10, 10),)) == []
    assert dispatcher_of(Fake("a")).holders(((0, 9),)) == []
