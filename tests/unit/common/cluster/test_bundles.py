"""Rings that were cut, and are cut again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from magnetar.common.cluster.bundles import (
    bundle_at,
    bundles_of,
    by_topic_count,
    cut,
    halves,
    merge,
    parts_of,
    split,
    within,
)
from magnetar.common.errors import InvalidName
from magnetar.common.metadata.values import Namespace, ResourceQuota, decode, encode
from magnetar.common.naming.bundle_range import BUNDLES_MAX, RING_END, BundleRange


def test_a_namespace_begins_with_equal_parts() -> None:
    assert [str(each) for each in bundles_of(Namespace(bundle_count=2))] == [
        "0x00000000_0x80000000",
        "0x80000000_0xffffffff",
    ]


def test_a_split_cuts_one_bundle_and_leaves_the_others() -> None:
    namespace = Namespace(bundle_count=4)
    first, *others = bundles_of(namespace)
    split(namespace, first, halves(first))
    again = decode(Namespace, encode(namespace))
    assert again.bundle_count == 5
    assert [str(each) for each in bundles_of(again)] == [
        "0x00000000_0x20000000",
        "0x20000000_0x40000000",
        *map(str, others),
    ]


def test_one_bundle_is_cut_at_several_places() -> None:
    namespace = Namespace(bundle_count=1)
    split(namespace, bundles_of(namespace)[0], [30, 10, 20, 10])
    assert [each.lower for each in bundles_of(namespace)] == [0, 10, 20, 30]
    assert bundles_of(namespace)[-1].upper == RING_END


def test_every_hash_is_in_exactly_the_bundle_that_is_found_for_it() -> None:
    namespace = Namespace(bundle_count=3)
    split(namespace, bundles_of(namespace)[1], [0x6000_0000, 0x7000_0001])
    bundles = bundles_of(namespace)
    edges = [0, RING_END, *(each.lower for each in bundles), *(each.upper - 1 for each in bundles)]
    for ring_hash in edges:
        found = bundles[bundle_at(bundles, ring_hash)]
        assert [each for each in bundles if ring_hash in each] == [found]


def test_load_of_a_bundle_is_removed_with_it() -> None:
    namespace = Namespace(bundle_count=2)
    first, second = bundles_of(namespace)
    for each in (first, second):
        namespace.resource_quotas[str(each)].CopyFrom(ResourceQuota(memory=3))
    split(namespace, first, halves(first))
    assert list(namespace.resource_quotas) == [str(second)]


def test_equal_parts_need_no_boundaries_of_their_own() -> None:
    namespace = Namespace()
    cut(namespace, [0x8000_0000])
    assert namespace == Namespace(bundle_count=2)


@pytest.mark.parametrize("boundaries", [[0], [5, 5], [7, 5], [RING_END]])
def test_a_ring_is_not_cut_where_nothing_is_between(boundaries: list[int]) -> None:
    with pytest.raises(InvalidName, match="must ascend"):
        cut(Namespace(), boundaries)


def test_a_namespace_has_only_so_many_bundles() -> None:
    namespace = Namespace(bundle_count=BUNDLES_MAX - 1)
    first, second = bundles_of(namespace)[:2]
    split(namespace, first, halves(first))
    assert namespace.bundle_count == len(bundles_of(namespace)) == BUNDLES_MAX
    before = encode(namespace)
    with pytest.raises(InvalidName, match=f"at most {BUNDLES_MAX}"):
        split(namespace, second, halves(second))
    assert encode(namespace) == before
    with pytest.raises(InvalidName, match=f"1 to {BUNDLES_MAX}"):
        cut(namespace, range(1, BUNDLES_MAX + 1))


def test_halves_are_as_large_as_each_other_unless_there_is_one_hash() -> None:
    assert halves(BundleRange(0x4000_0000, 0x8000_0000)) == [0x6000_0000]
    assert halves(BundleRange(8, 10)) == [9]
    assert halves(BundleRange(8, 9)) == []


@pytest.mark.parametrize(
    ("hashes", "found"),
    [
        ([], []),
        ([5], []),
        ([5, 5], []),
        ([5, 6], [6]),
        ([90, 10, 20, 80], [50]),
        ([1, 1, 1, 99], [50]),
        ([1, 9, 9, 9, 9], [5]),
    ],
)
def test_as_many_topics_are_on_either_side(hashes: list[int], found: list[int]) -> None:
    assert by_topic_count(BundleRange(0, 100), hashes) == found


def test_a_cut_by_topics_leaves_half_of_them_before_it() -> None:
    hashes = [3, 14, 15, 92, 65, 35, 89]
    (middle,) = by_topic_count(BundleRange(0, 100), hashes)
    halved = [BundleRange(lower, upper) for lower, upper in pairwise([0, middle, 100])]
    assert [sum(each in part for each in hashes) for part in halved] == [3, 4]


def test_the_parts_of_a_bundle_meet_and_are_all_of_it() -> None:
    bundle = BundleRange(0x10, 0x40)
    assert parts_of(bundle, [0x30, 0x20, 0x20]) == [
        BundleRange(0x10, 0x20),
        BundleRange(0x20, 0x30),
        BundleRange(0x30, 0x40),
    ]
    for boundaries in ([], [0x10], [0x40], [0x20, 0x50]):
        with pytest.raises(InvalidName, match="strictly within it"):
            parts_of(bundle, boundaries)


def test_merging_takes_the_boundaries_within_away_and_leaves_the_others() -> None:
    namespace = Namespace(bundle_count=4)
    first, second, *others = bundles_of(namespace)
    for each in bundles_of(namespace):
        namespace.resource_quotas[str(each)].CopyFrom(ResourceQuota(memory=3))
    merge(namespace, BundleRange(first.lower, second.upper))
    assert bundles_of(namespace) == [BundleRange(first.lower, second.upper), *others]
    assert namespace.bundle_count == 3
    assert sorted(namespace.resource_quotas) == sorted(map(str, others))


def test_a_bundle_that_was_split_and_merged_is_as_it_was() -> None:
    namespace = Namespace(bundle_count=4)
    third = bundles_of(namespace)[2]
    split(namespace, third, [third.lower + 5, third.lower + 9])
    merge(namespace, third)
    assert namespace == Namespace(bundle_count=4)
    merge(namespace, third)
    assert namespace == Namespace(bundle_count=4)


def test_all_bundles_can_be_one() -> None:
    namespace = Namespace(bundle_count=BUNDLES_MAX)
    merge(namespace, BundleRange(0, RING_END))
    assert namespace == Namespace(bundle_count=1)


@pytest.mark.parametrize(
    ("lower", "upper", "reason"),
    [
        (1, 0x8000_0000, "no bundle begins at 0x00000001"),
        (0, 0x8000_0001, "no bundle ends at 0x80000001"),
        (0x4000_0000, 0x5000_0000, "no bundle begins at 0x40000000"),
        (0x3000_0000, 0x5000_0000, "no bundle begins at 0x30000000"),
    ],
)
def test_bundles_are_merged_only_as_wholes(lower: int, upper: int, reason: str) -> None:
    namespace = Namespace(bundle_count=4)
    with pytest.raises(InvalidName, match=reason):
        merge(namespace, BundleRange(lower, upper))
    assert namespace == Namespace(bundle_count=4)


def test_the_bundles_within_a_range_meet_and_are_all_of_it() -> None:
    bundles = bundles_of(Namespace(bundle_count=4))
    assert within(bundles, bundles[1]) == [bundles[1]]
    assert within(bundles, BundleRange(0x4000_0000, RING_END)) == bundles[1:]
