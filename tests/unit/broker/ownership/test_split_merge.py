"""How bundles of ours become others: split, merged, in one transaction or not at all."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.ownership import split_merge
from magnetar.common.errors import InvalidName, ServiceNotReady
from magnetar.common.metadata.values import Namespace, encode
from magnetar.common.naming.bundle_range import RING_END, BundleRange, split_ring

from tests.unit.broker.ownership.world import (
    BUNDLES,
    FIRST,
    KEYS,
    NAMESPACE,
    SECOND,
    World,
    in_a_cluster,
    told,
    topic_in,
)

BOTH = BundleRange(FIRST.lower, SECOND.upper)
HALVES = [BundleRange(0, 0x2000_0000), BundleRange(0x2000_0000, 0x4000_0000)]


# -- splitting


def test_the_parts_of_a_split_bundle_are_ours_in_one_step_and_no_topic_is_lost() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        assert await a.ownership.split(NAMESPACE, FIRST, [0x2000_0000]) == HALVES
        assert (a.owns, a.lost, world.owned()) == (HALVES, [], HALVES)
        versions = {owned.version for owned in map(world.owner, HALVES) if owned is not None}
        assert len(versions) == 1
        for half in HALVES:
            a.ownership.check(topic_in(half))
            assert (await b.take(half)).broker_id == "a:8080"
        await told()
        assert (a.owns, a.lost) == (HALVES, [])
        assert b.cluster.rings.bundle_of(topic_in(HALVES[1])) == HALVES[1]

    in_a_cluster(body)


@pytest.mark.parametrize("applied", [True, False])
def test_a_split_whose_outcome_was_lost_is_done_once(applied: bool) -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        a.store.lose_next_outcome(applied=applied)
        await a.ownership.split(NAMESPACE, FIRST, [0x2000_0000])
        assert (a.owns, a.lost, world.owned()) == (HALVES, [], HALVES)

    in_a_cluster(body)


def test_only_a_bundle_of_ours_is_split_and_only_within() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        with pytest.raises(ServiceNotReady, match="not owned by this broker"):
            await b.ownership.split(NAMESPACE, FIRST, [0x2000_0000])
        for boundaries in ([], [0], [0x4000_0000], [0x2000_0000, 0x5000_0000]):
            with pytest.raises(InvalidName, match="strictly within"):
                await a.ownership.split(NAMESPACE, FIRST, boundaries)
        with pytest.raises(InvalidName, match="parts at most"):
            await a.ownership.split(NAMESPACE, FIRST, range(1, 1000))
        with pytest.raises(InvalidName, match="at most 128 bundles"):
            await a.ownership.split(NAMESPACE, FIRST, range(1, split_merge.PARTS_MAX))
        assert (a.owns, world.owned()) == ([FIRST], [FIRST])

    in_a_cluster(body)


def test_splits_of_several_bundles_at_once_are_all_done() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        for broker, bundle in zip((a, b, a, b), BUNDLES, strict=True):
            await broker.take(bundle)
        await asyncio.gather(
            *(
                broker.ownership.split(NAMESPACE, bundle, [bundle.lower + 5, bundle.lower + 10])
                for broker, bundle in zip((a, b, a, b), BUNDLES, strict=True)
            )
        )
        assert len(world.owned()) == 12
        assert sorted(a.owns + b.owns) == world.owned()

    in_a_cluster(body)


# -- merging


def test_bundles_of_ours_become_one_in_one_step_and_no_topic_is_lost() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        for bundle in BUNDLES:
            await a.take(bundle)
        merged = BundleRange(FIRST.lower, BUNDLES[2].upper)
        owned = await a.ownership.merge(NAMESPACE, merged)
        assert (a.owns, a.lost, world.owned()) == ([merged, BUNDLES[3]], [], [merged, BUNDLES[3]])
        assert world.owner(merged) == owned
        for bundle in BUNDLES:
            a.ownership.check(topic_in(bundle))
        assert (await b.take(merged)).broker_id == "a:8080"
        await told()
        assert (a.owns, a.lost) == ([merged, BUNDLES[3]], [])
        assert b.cluster.rings.bundle_of(topic_in(SECOND)) == merged
        assert (await b.ownership.where(topic_in(SECOND))).broker_url == "pulsar://a:8080"
        assert await a.ownership.merge(NAMESPACE, merged) == owned, "it is one"

    in_a_cluster(body)


@pytest.mark.parametrize("applied", [True, False])
def test_a_merge_whose_outcome_was_lost_is_done_once(applied: bool) -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        await a.take(SECOND)
        a.store.lose_next_outcome(applied=applied)
        await a.ownership.merge(NAMESPACE, BOTH)
        await told()
        assert (a.owns, a.lost, world.owned()) == ([BOTH], [], [BOTH])

    in_a_cluster(body)


def test_bundles_are_merged_only_when_all_are_ours_and_only_as_wholes() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        with pytest.raises(ServiceNotReady, match=f"{SECOND} of .* is not owned by this broker"):
            await a.ownership.merge(NAMESPACE, BOTH)
        await b.take(SECOND)
        await told()
        for broker in (a, b):
            with pytest.raises(ServiceNotReady, match="is not owned by this broker"):
                await broker.ownership.merge(NAMESPACE, BOTH)
        with pytest.raises(ServiceNotReady, match="is not owned by this broker"):
            await a.ownership.merge(NAMESPACE, SECOND)
        with pytest.raises(InvalidName, match="no bundle begins at"):
            await a.ownership.merge(NAMESPACE, BundleRange(1, SECOND.upper))
        with pytest.raises(InvalidName, match="no bundle ends at"):
            await a.ownership.merge(NAMESPACE, BundleRange(FIRST.lower, SECOND.upper - 1))
        assert (a.owns, b.owns, world.owned()) == ([FIRST], [SECOND], [FIRST, SECOND])

    in_a_cluster(body)


def test_more_bundles_than_a_transaction_holds_are_merged_in_parts() -> None:
    async def body(world: World) -> None:
        key = KEYS.namespace(NAMESPACE)
        await world.store.put(key, encode(Namespace(bundle_count=128)))
        (a,) = await world.started("a:8080")
        many = split_ring(128)
        for bundle in many:
            await a.take(bundle)
        everything = BundleRange(0, RING_END)
        with pytest.raises(InvalidName, match="126 bundles at most can be merged at a time, not 128"):
            await a.ownership.merge(NAMESPACE, everything)
        await a.ownership.merge(NAMESPACE, BundleRange(0, many[125].upper))
        await a.ownership.merge(NAMESPACE, everything)
        assert (a.owns, a.lost, world.owned()) == ([everything], [], [everything])

    in_a_cluster(body)


def test_a_bundle_that_another_has_taken_meanwhile_is_not_merged() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        given = [await a.take(bundle) for bundle in (FIRST, SECOND)]
        a.store.faults.watch_delay_max_s = 60.0  # it hears of nothing
        await b.take(SECOND, given[1])
        with pytest.raises(ServiceNotReady, match=r"no longer owns all of"):
            await a.ownership.merge(NAMESPACE, BOTH)
        await told()
        assert (a.owns, a.lost, b.owns, world.owned()) == ([FIRST], [SECOND], [SECOND], [FIRST, SECOND])

    in_a_cluster(body)


def test_merging_and_splitting_at_once_leave_one_cut_and_one_owner_of_it() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        await a.take(SECOND)
        done = await asyncio.gather(
            a.ownership.merge(NAMESPACE, BOTH),
            a.ownership.split(NAMESPACE, FIRST, [0x2000_0000]),
            a.ownership.merge(NAMESPACE, BOTH),
            a.ownership.split(NAMESPACE, SECOND, [0x6000_0000]),
            return_exceptions=True,
        )
        assert not all(isinstance(each, Exception) for each in done)
        await told()
        assert a.owns == world.owned()
        assert a.lost == []
        assert (a.owns[0].lower, a.owns[-1].upper) == (FIRST.lower, SECOND.upper)

    in_a_cluster(body)
