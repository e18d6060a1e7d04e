from __future__ import annotations

import pytest
from magnetar.broker.dispatch.key_shared.hash_ranges import HashRanges
from magnetar.common.errors import ConsumerAssignFailed

from tests.unit.broker.dispatch.key_shared.fakes import Fake, layout


def selector_of(*consumers: Fake) -> HashRanges[Fake]:
    selector: HashRanges[Fake] = HashRanges()
    for consumer in consumers:
        selector.add(consumer)
    return selector


C1, C2, C3, C4 = (Fake(f"C{number}") for number in range(1, 5))


def test_newcomers_take_the_lower_half_of_the_largest_range_the_lowest_of_equal_ones() -> None:
    assert layout(selector_of(C1)) == [(0, 65535, "C1")]
    assert layout(selector_of(C1, C2)) == [(0, 32768, "C2"), (32769, 65535, "C1")]
    assert layout(selector_of(C1, C2, C3)) == [(0, 16384, "C3"), (16385, 32768, "C2"), (32769, 65535, "C1")]
    assert layout(selector_of(C1, C2, C3, C4)) == [
        (0, 16384, "C3"),
        (16385, 32768, "C2"),
        (32769, 49152, "C4"),
        (49153, 65535, "C1"),
    ]


def test_a_leavers_range_goes_to_its_right_neighbour() -> None:
    selector = selector_of(C1, C2, C3, C4)
    selector.remove(C4)
    assert layout(selector) == [(0, 16384, "C3"), (16385, 32768, "C2"), (32769, 65535, "C1")]
    selector.remove(C3)
    assert layout(selector) == [(0, 32768, "C2"), (32769, 65535, "C1")]


def test_the_rightmost_range_goes_to_its_left_neighbour() -> None:
    selector = selector_of(C1, C2)
    selector.remove(C1)
    assert layout(selector) == [(0, 65535, "C2")]
    assert selector.owner(1) is selector.owner(65535) is C2


def test_no_range_is_owned_after_the_last_consumer_closed() -> None:
    selector = selector_of(C1)
    selector.remove(C1)
    assert layout(selector) == [(0, 65535, None)]
    assert selector.owner(7) is None
    selector.remove(C1)
    selector.add(C2)
    assert selector.ranges()[C2] == [(0, 65535)]


def test_a_slot_that_equals_a_bound_is_on_the_lower_side() -> None:
    selector = selector_of(C1, C2)
    assert selector.owner(32768) is C2
    assert selector.owner(32769) is C1


def test_a_range_of_one_slot_cannot_be_split() -> None:
    selector: HashRanges[Fake] = HashRanges()
    selector.bounds = list(range(65_536))
    selector.owners = [C2] * 65_536
    before = layout(selector)
    with pytest.raises(ConsumerAssignFailed, match="single slot"):
        selector.add(C1)
    assert layout(selector) == before
