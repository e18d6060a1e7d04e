"""Bundles cover the ring without gap or overlap."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from magnetar.common.errors import InvalidName
from magnetar.common.naming.bundle_range import BUNDLES_MAX, RING_END, BundleRange, cut_ring, split_ring


def test_four_bundles_by_default() -> None:
    assert [str(bundle) for bundle in split_ring()] == [
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    ]


@given(st.integers(1, BUNDLES_MAX), st.integers(0, RING_END))
@example(1, 0)
@example(4, RING_END)
@example(4, RING_END - 1)
@example(4, 0x40000000)
@example(3, 0x3FFFFFFF)
def test_every_hash_is_in_exactly_one_bundle(count: int, ring_hash: int) -> None:
    bundles = split_ring(count)
    assert len(bundles) == count
    assert sum(ring_hash in bundle for bundle in bundles) == 1


def test_ranges_overlap_where_a_hash_is_in_both() -> None:
    whole, half = split_ring(1)[0], split_ring(2)[1]
    first, second, third, last = split_ring()
    assert half.overlaps(third)
    assert half.overlaps(last)
    assert third.overlaps(half)
    assert whole.overlaps(first)
    assert not half.overlaps(second)
    assert not second.overlaps(first)


def test_lower_ends_are_inclusive_and_upper_ends_exclusive_but_for_the_last() -> None:
    first, second, _, last = split_ring()
    assert 0 in first
    assert 0x40000000 not in first
    assert 0x40000000 in second
    assert RING_END in last


def test_text_form_and_back() -> None:
    for bundle in split_ring(7):
        assert BundleRange.parse(str(bundle)) == bundle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x0_0x4",
        "0x00000000-0x40000000",
        "0x40000000_0x40000000",
        "0x80000000_0x40000000",
        "0X00000000_0X1",
    ],
)
def test_a_bad_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        BundleRange.parse(text)


@pytest.mark.parametrize("count", [0, -1, BUNDLES_MAX + 1])
def test_a_bad_count_is_refused(count: int) -> None:
    with pytest.raises(InvalidName):
        split_ring(count)


def test_a_ring_is_cut_where_it_is_said() -> None:
    assert cut_ring([]) == split_ring(1)
    assert cut_ring([0x8000_0000]) == split_ring(2)
    assert [str(each) for each in cut_ring([1])] == ["0x00000000_0x00000001", "0x00000001_0xffffffff"]


@pytest.mark.parametrize("boundaries", [[0], [RING_END], [2, 1], [1, 1], [-1], range(1, BUNDLES_MAX + 1)])
def test_a_ring_is_not_cut_into_what_is_no_bundle(boundaries: list[int]) -> None:
    with pytest.raises(InvalidName):
        cut_ring(boundaries)
