from __future__ import annotations

import pytest
from magnetar.broker.dispatch.key_shared.sticky_ranges import StickyRanges
from magnetar.common.errors import ConsumerAssignFailed

from tests.unit.broker.dispatch.key_shared.fakes import Fake, layout


def test_consumers_get_the_ranges_that_they_name_and_the_rest_has_no_owner() -> None:
    selector: StickyRanges[Fake] = StickyRanges()
    one, two = Fake("one", ((100, 200), (0, 9))), Fake("two", ((201, 201), (60_000, 65_535)))
    selector.add(one)
    selector.add(two)
    assert layout(selector) == [
        (0, 9, "one"),
        (10, 99, None),
        (100, 200, "one"),
        (201, 201, "two"),
        (202, 59_999, None),
        (60_000, 65_535, "two"),
    ]
    assert selector.owner(200) is one, "both ends are inclusive"
    assert selector.owner(201) is two
    assert selector.ranges()[one] == [(0, 9), (100, 200)]
    selector.remove(one)
    assert selector.owner(5) is None
    assert selector.owner(201) is two
    selector.remove(two)
    assert layout(selector) == [(0, 65535, None)]


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ((), "names no hash ranges"),
        (((5, 4),), "invalid hash range"),
        (((-1, 4),), "invalid hash range"),
        (((0, 65_536),), "invalid hash range"),
        (((0, 10), (10, 20)), "overlap"),
        (((30, 40), (0, 100)), "overlap"),
        (((0, 10), (0, 10)), "overlap"),
    ],
)
def test_invalid_sticky_hash_ranges_are_refused(ranges: tuple[tuple[int, int], ...], why: str) -> None:
    selector: StickyRanges[Fake] = StickyRanges()
    with pytest.raises(ConsumerAssignFailed, match=why):
        selector.add(Fake("bad", ranges))
    assert layout(selector) == [(0, 65535, None)], "as if it had never come"


@pytest.mark.parametrize("mine", [(0, 100), (150, 150), (200, 300), (120, 130), (0, 65_535)])
def test_ranges_of_another_consumer_are_refused(mine: tuple[int, int]) -> None:
    selector: StickyRanges[Fake] = StickyRanges()
    holder = Fake("holder", ((100, 200),))
    selector.add(holder)
    newcomer = Fake("newcomer", (mine,))
    assert selector.holders(newcomer.hash_ranges) == [holder]
    with pytest.raises(ConsumerAssignFailed, match="holder"):
        selector.add(newcomer)
    assert selector.ranges()[holder] == [(100, 200)]
    selector.remove(holder)
    selector.add(newcomer)
    assert selector.ranges()[newcomer] == [mine]
