"""How bundles become ours, stay so, and cease to be. At large: tests/simulation/test_bundle_ownership.py."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.errors import MetadataError, NamespaceNotFound, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.ownership.world import (
    BUNDLES,
    FIRST,
    KEYS,
    NAMESPACE,
    SECOND,
    TTL_MS,
    World,
    expire,
    in_a_cluster,
    told,
    topic_in,
)

HALVES = [BundleRange(0, 0x2000_0000), BundleRange(0x2000_0000, 0x4000_0000)]


# -- taking


def test_unowned_bundle_is_acquired_and_served() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        with pytest.raises(ServiceNotReady, match="look it up again"):
            a.ownership.check(topic_in(FIRST))
        owned = await a.take(FIRST)
        assert owned == world.owner(FIRST)
        assert (owned.broker_id, owned.run) == ("a:8080", a.cluster.presence.run)
        a.ownership.check(topic_in(FIRST))
        for ownership, bundle in ((a.ownership, SECOND), (b.ownership, FIRST)):
            with pytest.raises(ServiceNotReady):
                ownership.check(topic_in(bundle))
        assert await a.take(FIRST) == owned

    in_a_cluster(body)


def test_a_bundle_of_a_broker_that_is_up_is_not_taken() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        owned = await a.take(FIRST)
        assert await b.take(FIRST) == owned
        assert b.owns == []
        assert world.owner(FIRST) == owned

    in_a_cluster(body)


def test_one_of_many_concurrent_acquisitions_wins_and_all_learn_the_owner() -> None:
    for seed in range(10):

        async def body(world: World) -> None:
            brokers = await world.started(*(f"b{number}:8080" for number in range(5)))
            taken = await asyncio.gather(*(each.take(FIRST) for each in brokers for _ in range(3)))
            assert len(set(taken)) == 1
            assert [each.name for each in brokers if each.owns] == [taken[0].broker_id]

        in_a_cluster(body, seed)


def test_a_bundle_of_a_run_that_is_gone_is_taken_although_its_key_is_there() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        former = await a.take(FIRST)
        a.store.crash()
        again = world.broker("a:8080")
        await again.begin()
        await told()
        assert world.owner(FIRST) == former
        owned = await b.take(FIRST)
        assert owned.broker_id == "b:8080"
        await asyncio.sleep(3 * TTL_MS / 1000)
        assert world.owner(FIRST) == owned, "the end of the former session takes nothing of ours"

    in_a_cluster(body)


def test_a_broker_that_is_only_late_to_be_known_loses_nothing() -> None:
    async def body(world: World) -> None:
        (b,) = await world.started("b:8080")
        b.store.faults.watch_delay_max_s = 60.0
        a = world.broker("a:8080")
        await a.begin()
        owned = await a.take(FIRST)
        assert b.cluster.directory.get("a:8080") is None
        assert await b.take(FIRST) == owned
        assert b.cluster.directory.is_current("a:8080", owned.run)

    in_a_cluster(body)


def test_only_a_handed_over_bundle_is_acquired_from_a_live_owner() -> None:
    async def body(world: World) -> None:
        a, b, c = await world.started("a:8080", "b:8080", "c:8080")
        given = await a.take(FIRST)
        async with a.ownership.giving(NAMESPACE, FIRST) as owned:
            assert owned == given
            with pytest.raises(ServiceNotReady):
                a.ownership.check(topic_in(FIRST))
            taken = await b.take(FIRST, given)
        assert (taken.broker_id, world.owner(FIRST)) == ("b:8080", taken)
        assert (a.owns, b.owns, a.lost) == ([], [FIRST], [FIRST])
        assert await c.take(FIRST, given) == taken, "what was handed over once is not handed over twice"

    in_a_cluster(body)


def test_bundle_without_a_taker_stays_owned() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        owned = await a.take(FIRST)
        with pytest.raises(RuntimeError, match="the other broker"):
            async with a.ownership.giving(NAMESPACE, FIRST):
                raise RuntimeError("the other broker is gone")
        a.ownership.check(topic_in(FIRST))
        assert world.owner(FIRST) == owned
        assert a.lost == []

    in_a_cluster(body)


def test_a_bundle_that_is_not_ours_is_not_given() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        async with a.ownership.giving(NAMESPACE, FIRST) as owned:
            assert owned is None
        await a.ownership.release(NAMESPACE, FIRST)
        assert world.owned() == []

    in_a_cluster(body)


@pytest.mark.parametrize("applied", [True, False])
def test_taking_whose_outcome_was_lost_is_settled_by_the_key(applied: bool) -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        a.store.lose_next_outcome(applied=applied)
        assert await a.take(FIRST) == world.owner(FIRST)
        assert a.owns == [FIRST]

    in_a_cluster(body)


def test_acquisition_that_commits_after_its_timeout_counts() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        a.store.lose_next_outcome(applied=True)
        a.store.faults.delay_max_s = 0.0
        taking = asyncio.create_task(a.take(FIRST))
        await world.given(FIRST)
        a.store.faults.unreachable = True
        with pytest.raises(MetadataError):
            await taking
        assert a.owns == []
        a.store.faults.unreachable = False
        await asyncio.sleep(10)
        assert a.owns == [FIRST]

    in_a_cluster(body)


def test_changed_bundle_boundaries_restore_no_former_bundle() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        with pytest.raises(ServiceNotReady, match="no bundle 0x00000000_0x20000000;"):
            await a.take(HALVES[0])
        await world.store.delete(KEYS.namespace(NAMESPACE))
        with pytest.raises(NamespaceNotFound):
            await a.take(FIRST)
        assert world.owned() == []

    in_a_cluster(body)


def test_a_new_cut_waits_until_the_owner_of_the_former_one_has_let_go_which_it_does() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        a.store.faults.watch_delay_max_s = 1.0
        await world.put_namespace(8)
        with pytest.raises(ServiceNotReady, match=f"waits for the release of {FIRST}"):
            await b.take(HALVES[0])
        await asyncio.sleep(3)
        assert (a.owns, a.lost, world.owned()) == ([], [FIRST], [])
        assert (await b.take(HALVES[0])).broker_id == "b:8080"

    in_a_cluster(body)


def test_a_namespace_that_is_deleted_takes_its_owners_with_it() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        await world.store.delete(KEYS.namespace(NAMESPACE))
        await asyncio.sleep(1)
        assert (a.owns, world.owned()) == ([], [])

    in_a_cluster(body)


def test_policies_that_change_a_namespace_leave_its_owners_alone() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        owned = await a.take(FIRST)
        await world.put_namespace()
        await asyncio.sleep(1)
        assert (a.owns, a.lost, world.owner(FIRST)) == ([FIRST], [], owned)

    in_a_cluster(body)


def test_a_broker_that_is_not_registered_yet_or_refuses_takes_nothing() -> None:
    async def body(world: World) -> None:
        a = world.broker("a:8080")
        await a.begin(register=False)
        with pytest.raises(ServiceNotReady, match="takes no bundles: it is starting"):
            await a.take(FIRST)
        await a.cluster.register(a.fill)
        await a.take(FIRST)
        a.ownership.refuse("it is draining")
        with pytest.raises(ServiceNotReady, match="takes no bundles: it is draining"):
            await a.take(SECOND)
        assert a.owns == [FIRST]
        a.ownership.check(topic_in(FIRST))

    in_a_cluster(body)


# -- losing


def test_released_bundle_has_no_owner() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        await a.ownership.release(NAMESPACE, FIRST)
        assert (a.owns, world.owned()) == ([], [])
        assert (await b.take(FIRST)).broker_id == "b:8080"

    in_a_cluster(body)


@pytest.mark.parametrize("applied", [True, False])
def test_a_release_whose_outcome_was_lost_is_what_metadata_says(applied: bool) -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        a.store.lose_next_outcome(applied=applied)
        await a.ownership.release(NAMESPACE, FIRST)
        assert (FIRST in a.owns) == (FIRST in world.owned()) == (not applied)

    in_a_cluster(body)


def test_a_release_that_metadata_did_not_hear_of_keeps_its_topics_closed_until_it_is_known() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await a.take(FIRST)
        a.store.faults.unreachable = True
        with pytest.raises(MetadataError):
            await a.ownership.release(NAMESPACE, FIRST)
        with pytest.raises(ServiceNotReady):
            a.ownership.check(topic_in(FIRST))
        a.store.faults.unreachable = False
        await asyncio.sleep(1)
        a.ownership.check(topic_in(FIRST))

    in_a_cluster(body)


def test_a_bundle_that_metadata_gives_to_another_is_lost_as_soon_as_we_hear_of_it() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        owned = await a.take(FIRST)
        await a.take(SECOND)
        taken = await b.take(FIRST, Owned("a:8080", owned.run, owned.version, 0))
        assert taken.broker_id == "b:8080"
        await told()
        assert (a.owns, a.lost) == ([SECOND], [FIRST])

    in_a_cluster(body)


def test_a_session_that_ended_leaves_nothing_and_takes_nothing() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        for bundle in BUNDLES:
            await a.take(bundle)
        expire(a)
        a.cluster.drop("its session has ended")
        assert (a.owns, a.lost) == ([], [])
        with pytest.raises(ServiceNotReady, match="its session has ended"):
            await a.take(FIRST)
        await told()
        for bundle in BUNDLES:
            assert (await b.take(bundle)).broker_id == "b:8080"

    in_a_cluster(body)


def test_a_take_that_is_under_way_when_the_run_ends_gives_us_nothing() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        a.store.faults.delay_max_s = 0.0
        taking = asyncio.create_task(a.take(FIRST))
        await world.given(FIRST)
        a.cluster.drop("its session has ended")
        with pytest.raises(ServiceNotReady, match="its session has ended"):
            await taking
        assert a.owns == []

    in_a_cluster(body)


# -- where the others are


def test_a_topic_is_where_its_owner_says_it_is_and_an_unowned_one_is_taken_by_who_is_asked() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        await told()
        for broker in (a, b):
            assert (await broker.ownership.where(topic_in(FIRST))).broker_url == "pulsar://a:8080"
        assert (await b.ownership.where(topic_in(SECOND))).broker_url == "pulsar://b:8080"
        assert b.owns == [SECOND]
        with pytest.raises(ServiceNotReady, match="no listener 'outside'"):
            await a.ownership.where(topic_in(FIRST), "outside")

    in_a_cluster(body)


def test_claim_takes_unowned_and_refuses_owned_bundles() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await a.take(FIRST)
        await told()
        await b.ownership.claim(topic_in(SECOND))
        assert b.owns == [SECOND]
        with pytest.raises(ServiceNotReady, match="not served by this broker"):
            await b.ownership.claim(topic_in(FIRST))
        with pytest.raises(NamespaceNotFound):
            await b.ownership.claim(TopicName.parse("persistent://tenant/other/t"))

    in_a_cluster(body)


def test_a_broker_that_changes_its_registration_meanwhile_is_no_run_that_is_gone() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        owned = await a.take(FIRST)

        def drain(registration: BrokerRegistration) -> None:
            registration.draining = True

        await a.cluster.register(drain)
        assert await b.take(FIRST) == owned

    in_a_cluster(body)
