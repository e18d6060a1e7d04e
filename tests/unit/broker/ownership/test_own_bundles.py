"""The table of bundles that are ours."""

from __future__ import annotations

import pytest
from magnetar.broker.ownership.own_bundles import OwnBundle, OwnBundles
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

from tests.unit.broker.ownership.world import BUNDLES, FIRST, NAMESPACE, SECOND, topic_in


def own(bundle: BundleRange, namespace: NamespaceName = NAMESPACE) -> OwnBundle:
    return OwnBundle(namespace, bundle, 1, 0)


def test_a_topic_is_found_in_the_bundle_of_ours_that_has_its_hash() -> None:
    table = OwnBundles()
    for bundle in (BUNDLES[3], BUNDLES[1]):
        table.add(own(bundle))
    for bundle in BUNDLES:
        found = table.of_topic(topic_in(bundle))
        assert (found is not None and found.range == bundle) == (bundle in (BUNDLES[1], BUNDLES[3]))
    assert [each.range for each in table.of(NAMESPACE)] == [BUNDLES[1], BUNDLES[3]]


def test_only_this_very_bundle_is_it() -> None:
    table = OwnBundles()
    table.add(own(BundleRange(0, 0x2000_0000)))
    assert table.get(NAMESPACE, FIRST) is None
    assert table.get(NAMESPACE, BundleRange(0, 0x2000_0000)) is not None
    assert table.get(NamespaceName("tenant", "other"), BundleRange(0, 0x2000_0000)) is None


def test_two_that_overlap_are_never_both_ours() -> None:
    table = OwnBundles()
    table.add(own(FIRST))
    table.add(own(FIRST, NamespaceName("tenant", "other")))
    assert [each.range for each in table.overlapping(NAMESPACE, BundleRange(0x3FFF_FFFF, 0x5000_0000))] == [
        FIRST
    ]
    assert table.overlapping(NAMESPACE, SECOND) == []
    for bundle in (
        FIRST,
        BundleRange(1, 2),
        BundleRange(0, 0xFFFF_FFFF),
        BundleRange(0x3FFF_FFFF, 0x5000_0000),
    ):
        with pytest.raises(AssertionError, match="are both owned"):
            table.add(own(bundle))
    table.add(own(SECOND))
    assert len(table) == 3


def test_removed_bundle_is_gone_and_counted() -> None:
    table = OwnBundles()
    first = own(FIRST)
    table.add(first)
    assert table.remove(first)
    assert not table.remove(first)
    assert len(table) == 0
    assert list(table) == []
    table.add(own(FIRST))
    table.clear()
    assert (len(table), table.of_topic(topic_in(FIRST))) == (0, None)
