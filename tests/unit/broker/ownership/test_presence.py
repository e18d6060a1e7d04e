"""A broker is there for others as one run after the other, and learns when its run is over."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import MetadataError, ServiceNotReady, UnknownOutcome
from magnetar.common.metadata.values import BrokerRegistration, decode

from tests.unit.broker.ownership.world import KEYS, TTL_MS, SimBroker, World, expire, in_a_cluster, told


def registered(world: World, name: str) -> BrokerRegistration | None:
    found = world.server.get(KEYS.broker(name))
    return None if found is None else decode(BrokerRegistration, found.value)


def lost(broker: SimBroker) -> asyncio.Task[str]:
    return asyncio.create_task(broker.cluster.presence.lost(), name=f"{broker.name} lost")


def certain(broker: SimBroker, ago_s: float = 0.0) -> bool:
    """Whether its session certainly lived so long ago."""
    return asyncio.get_running_loop().time() - ago_s < broker.cluster.presence.lease.until_s


def test_a_broker_is_registered_with_its_run_and_its_addresses_and_leaves_at_once() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        presence = a.cluster.presence
        found = registered(world, "a:8080")
        assert found == presence.registration
        assert found is not None
        assert (found.run, found.addresses.broker_url) == (presence.run, "pulsar://a:8080")
        assert found.started_ms > 0
        assert presence.is_run("a:8080", presence.run)
        assert not presence.is_run("a:8080", presence.run + 1)
        await a.cluster.close()
        assert registered(world, "a:8080") is None
        await a.cluster.close()

    in_a_cluster(body)


def test_unregistered_broker_is_not_listed() -> None:
    async def body(world: World) -> None:
        a = world.broker("a:8080")
        await a.begin(register=False)
        assert registered(world, "a:8080") is None

    in_a_cluster(body)


def test_every_start_is_another_run() -> None:
    async def body(world: World) -> None:
        runs = {world.broker("a:8080").cluster.presence.run for _ in range(100)}
        assert len(runs) == 100
        assert 0 not in runs

    in_a_cluster(body)


def test_registering_again_says_what_is_different_and_loses_nothing() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        losing = lost(a)

        def drain(registration: BrokerRegistration) -> None:
            registration.draining = True

        await a.cluster.register(drain)
        await asyncio.sleep(TTL_MS / 1000)
        found = registered(world, "a:8080")
        assert found is not None
        assert found.draining
        assert found.addresses.broker_url == "pulsar://a:8080"
        assert not losing.done()
        losing.cancel()

    in_a_cluster(body)


def test_a_former_run_at_our_address_is_replaced_at_once() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        a.store.crash()
        again = world.broker("a:8080")
        async with asyncio.timeout(1):
            await again.begin()
        found = registered(world, "a:8080")
        assert found is not None
        assert found.run == again.cluster.presence.run != a.cluster.presence.run
        await asyncio.sleep(3 * TTL_MS / 1000)
        assert registered(world, "a:8080") is not None, "the end of the former session takes nothing of ours"

    in_a_cluster(body)


def test_a_run_that_was_replaced_learns_it_and_does_not_register_again() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        losing = lost(a)
        again = world.broker("a:8080")
        await again.begin()
        async with asyncio.timeout(1):
            assert "another run" in await losing
        with pytest.raises(ServiceNotReady, match="another run"):
            await a.cluster.register(a.fill)

    in_a_cluster(body)


def test_a_broker_learns_that_its_session_has_ended() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        losing = lost(a)
        await asyncio.sleep(30)
        assert not losing.done()
        expire(a)
        async with asyncio.timeout(1):
            reason = await losing
        assert "ended" in reason or "gone" in reason

    in_a_cluster(body)


def test_a_broker_that_cannot_reach_metadata_goes_on_until_metadata_says_otherwise() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        losing = lost(a)
        a.store.faults.unreachable = True
        await asyncio.sleep(60)
        assert not losing.done()
        assert not certain(a, 50 - TTL_MS / 1000)
        assert registered(world, "a:8080") is None
        a.store.faults.unreachable = False
        async with asyncio.timeout(TTL_MS / 1000):
            await losing

    in_a_cluster(body)


def test_a_broker_that_metadata_confirms_is_heard_of_again_and_again() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        losing = lost(a)
        for _ in range(5):
            await asyncio.sleep(TTL_MS / 1000)
            assert certain(a)
        losing.cancel()

    in_a_cluster(body)


def test_beginning_waits_while_metadata_is_away() -> None:
    async def body(world: World) -> None:
        a = world.broker("a:8080")
        a.store.faults.unreachable = True
        beginning = asyncio.create_task(a.begin())
        await asyncio.sleep(20)
        assert not beginning.done()
        a.store.faults.unreachable = False
        async with asyncio.timeout(10):
            await beginning
        assert registered(world, "a:8080") is not None

    in_a_cluster(body)


@pytest.mark.parametrize("applied", [True, False])
def test_a_registration_whose_outcome_was_lost_is_there_or_an_error(applied: bool) -> None:
    async def body(world: World) -> None:
        a = world.broker("a:8080")
        await a.begin(register=False)
        a.store.lose_next_outcome(applied=applied)
        if applied:
            await a.cluster.register(a.fill)
            assert registered(world, "a:8080") == a.cluster.presence.registration
        else:
            with pytest.raises(UnknownOutcome):
                await a.cluster.register(a.fill)
            assert registered(world, "a:8080") is None

    in_a_cluster(body)


def test_a_session_that_ended_before_the_registration_is_an_error() -> None:
    async def body(world: World) -> None:
        a = world.broker("a:8080")
        await a.begin(register=False)
        expire(a)
        await told()
        with pytest.raises(MetadataError, match="ended"):
            await a.cluster.register(a.fill)

    in_a_cluster(body)


def test_leaving_while_metadata_is_away_is_no_error() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        a.store.faults.unreachable = True
        await a.cluster.close()
        a.store.faults.unreachable = False

    in_a_cluster(body)


def test_a_change_that_is_under_way_when_a_run_closes_is_refused() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        session = a.cluster.presence.session
        await a.cluster.close()
        assert a.cluster.presence.session is session
        with pytest.raises(MetadataError):
            await a.cluster.presence.session.put_ephemeral(KEYS.broker("a:8080"), b"")

    in_a_cluster(body)
