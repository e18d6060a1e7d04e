"""Brokers that unload, split, are drained and load what they were given, under simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.broker.control.bundle_unload import Moving
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.cluster.bundles import BY_TOPIC_COUNT
from magnetar.common.errors import NotAllowed
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from structlog.testing import capture_logs

from tests.simulation.moving_world import (
    TIMEOUT_S,
    TOPIC,
    MovingBroker,
    MovingOthers,
    MovingWorld,
    no_coordinators,
)
from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import simulated

TOPICS = [TopicName.parse(f"persistent://public/default/t-{number}") for number in range(12)]
NAMESPACE = TOPIC.namespace


def brokers(count: int, scenario: Callable[[MovingWorld, Moving, MovingBroker], Awaitable[None]]) -> None:
    """So many brokers, the first of which owns every bundle and has a topic in each."""

    async def run(process: Process) -> None:
        world = await MovingWorld.of(process, count)
        first = next(iter(world.brokers.values()))
        moving = moving_of(first)
        for name in TOPICS:
            await first.registry.get(name, create=True, claim=True)
        await asyncio.sleep(1)
        await scenario(world, moving, first)
        await moving.close()
        await world.close()

    simulated(run)


def moving_of(broker: MovingBroker) -> Moving:
    clock = broker.world.process.clock
    return Moving(
        broker.cluster, broker.registry, MovingOthers(broker), clock, lambda: TIMEOUT_S, no_coordinators
    )


def bundles(broker: MovingBroker) -> set[tuple[NamespaceName, BundleRange]]:
    return {(own.namespace, own.range) for own in broker.cluster.ownership.table}


def test_a_broker_that_is_drained_gives_everything_to_others_and_takes_nothing() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        had = bundles(first)
        assert len(had) == 4
        await moving.drain(10.0)
        assert bundles(first) == set()
        others = [each for each in world.brokers.values() if each is not first]
        assert set.union(*map(bundles, others)) == had
        assert not first.registry.loaded

    brokers(3, scenario)


def test_bundle_split_during_a_drain_is_moved_too() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        own = next(iter(first.cluster.ownership.table))
        middle = (own.range.lower + own.range.upper) // 2
        splitting = asyncio.create_task(first.cluster.ownership.split(NAMESPACE, own.range, [middle]))
        await asyncio.sleep(0)
        await moving.drain(10.0)
        assert len(await splitting) == 2
        assert bundles(first) == set()
        assert not first.registry.loaded

    brokers(2, scenario)


def test_a_failure_of_ours_with_one_bundle_keeps_no_other_from_being_given_away() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        unlucky = next(iter(first.cluster.ownership.table)).range
        give = moving._hand_over.give

        async def fail(namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned:
            if bundle == unlucky:
                raise AssertionError("a bug")
            return await give(namespace, bundle, to)

        moving._hand_over.give = fail  # type: ignore[method-assign]
        await moving.drain(10.0)
        assert bundles(first) == {(NAMESPACE, unlucky)}

    brokers(2, scenario)


def test_drain_ends_in_time_and_keeps_bundles_without_a_taker() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        for broker in world.brokers.values():
            if broker is not first:
                broker.die()
        had, began = bundles(first), world.process.loop.time()
        await moving.drain(2.0)
        assert world.process.loop.time() - began <= 3.0
        assert bundles(first) == had
        assert set(first.registry.loaded) == {name.full for name in TOPICS}

    brokers(3, scenario)


def test_only_broker_has_no_candidate_for_a_handover() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        await moving.drain(10.0)
        assert set(first.registry.loaded) == {name.full for name in TOPICS}
        own = first.cluster.ownership.table.of_topic(TOPICS[0])
        assert own is not None
        stays = await moving.unload(own.namespace, own.range)
        assert stays is not None
        assert stays.broker_id == first.broker_id
        assert TOPICS[0].full not in first.registry.loaded, "closed, and loaded when somebody asks for it"
        await first.registry.get(TOPICS[0], create=False)

    brokers(1, scenario)


def test_first_part_of_a_split_bundle_stays_with_its_topics_open() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        own = first.cluster.ownership.table.of_topic(TOPICS[0])
        assert own is not None
        within = [name for name in TOPICS if name.hash in own.range]
        before = {name.full: first.registry.loaded[name.full] for name in within}
        parts = await moving.split(NAMESPACE, own.range, algorithm=BY_TOPIC_COUNT, unload=True)
        assert len(parts) == 2
        assert (NAMESPACE, parts[0]) in bundles(first)
        assert (NAMESPACE, parts[1]) not in bundles(first)
        for name in within:
            stayed = first.registry.loaded.get(name.full) is before[name.full]
            assert stayed == (name.hash in parts[0])

    brokers(2, scenario)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [("by_luck", "bundles are split by"), ("specified_positions_divide", "bundles are split by")],
)
def test_a_bundle_is_not_split_by_what_is_no_way_to_do_it(algorithm: str, reason: str) -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        had = bundles(first)
        own = next(iter(first.cluster.ownership.table))
        with pytest.raises(NotAllowed, match=reason):
            await moving.split(NAMESPACE, own.range, algorithm=algorithm)
        assert bundles(first) == had

    brokers(1, scenario)


def test_topics_that_had_clients_are_loaded_at_once_by_who_took_the_bundle() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        names = [name.full for name in TOPICS]
        for name in TOPICS:
            await first.registry.unload(name)
        moving.taken(NAMESPACE, BundleRange(0, 0xFFFF_FFFF), [*names, "persistent://public/default/gone"], 2)
        await asyncio.sleep(1)
        assert set(first.registry.loaded) == set(names), "and one that is gone does no harm"

    brokers(1, scenario)


def test_topics_that_cannot_be_loaded_are_a_line_of_the_log_and_not_one_each() -> None:
    async def scenario(world: MovingWorld, moving: Moving, first: MovingBroker) -> None:
        gone = [f"persistent://public/default/gone-{number}" for number in range(300)]
        with capture_logs() as logs:
            moving.taken(NAMESPACE, BundleRange(0, 0xFFFF_FFFF), gone)
            await asyncio.sleep(0.9)
        told = [each for each in logs if each["event"] == "topics of received bundles not loaded"]
        assert len(told) == 1

    brokers(1, scenario)
