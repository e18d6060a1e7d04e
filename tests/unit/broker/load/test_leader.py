"""One broker leads, another one after it; bundles are assigned once and spread; load is evened out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.broker.load.config import LoadConfig, PlacementConfig, SheddingConfig
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_errors import BrokerUnreachable
from magnetar.common.control.unresponsive_brokers import SILENT_S
from magnetar.common.errors import MetadataError, NamespaceNotFound, ServiceNotReady
from magnetar.common.metadata.values import Cluster, Leader, Namespace, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.sim.loop import SimLoop, run

from tests.unit.broker.load.clusters import bundle
from tests.unit.broker.load.world import CLUSTER, KEYS, World, spread

QUICK = LoadConfig(shedding=SheddingConfig(hits=1, history=0.0))


def simulated(
    scenario: Callable[[World], Awaitable[None]], config: LoadConfig | None = None, seed: int = 1
) -> None:
    loop = SimLoop(seed, time_max_s=100_000)

    async def main() -> None:
        world = World(loop, config)
        try:
            await scenario(world)
        finally:
            await world.close()

    run(loop, main())


async def three(world: World) -> None:
    for broker_id in ("a:80", "b:80", "c:80"):
        await world.add(broker_id)
    await asyncio.sleep(2)


@pytest.mark.parametrize("seed", range(5))
def test_one_broker_leads_and_after_its_death_another_one(seed: int) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        first = world.leader
        for broker in world.brokers.values():
            leader = broker.directory.leader
            assert leader is not None
            assert (leader.id, leader.address) == (first.broker_id, f"control of {first.broker_id}")
        others = [broker for broker in world.brokers.values() if broker is not first]
        with pytest.raises(ServiceNotReady, match="is not the leader"):
            await others[0].leader.assign(bundle(0))
        with pytest.raises(ServiceNotReady, match="is not the leader"):
            others[0].leader.report(others[0].report({}))
        await world.kill(first.broker_id)
        await asyncio.sleep(10)
        assert world.leader in others
        found = world.server.get(KEYS.broker_leader)
        assert found is not None
        assert decode(Leader, found.value).id == world.leader.broker_id

    simulated(scenario, seed=seed)


def test_a_bundle_is_assigned_once_however_many_ask_for_it() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader.leader
        found = await asyncio.gather(*(leader.assign(bundle(0)) for _ in range(100)))
        assert len(set(found)) == 1
        taken = [each for broker in world.brokers.values() for each in broker.taken]
        assert taken == [bundle(0)]
        await asyncio.sleep(1)
        assert await leader.assign(bundle(0)) == found[0], "it is owned already"
        assert sum(len(broker.taken) for broker in world.brokers.values()) == 1

    simulated(scenario)


def test_a_burst_of_assignments_spreads_over_all_brokers() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        bundles = [bundle(number) for number in range(300)]
        await asyncio.gather(*(world.leader.leader.assign(each) for each in bundles))
        counts = spread(list(world.brokers.values()), bundles, world)
        assert sum(counts.values()) == 300
        assert max(counts.values()) - min(counts.values()) <= 3, counts

    simulated(scenario)


def test_a_broker_that_does_not_take_it_is_passed_over_and_one_that_was_quicker_is_believed() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader.leader
        first = leader.choose(bundle(0), ())[0]
        world.brokers[first].refuses = ServiceNotReady("it is shutting down")
        for number in range(1, 31):
            assert (await leader.assign(bundle(number)))[0] != first
        counts = spread(list(world.brokers.values()), [bundle(number) for number in range(1, 31)], world)
        assert sorted(counts.values())[0] == 0
        assert max(counts.values()) <= 17

        other = next(each for each in world.brokers if each != first)
        key = KEYS.bundle_owner(*bundle(99))
        await world.give(bundle(99), other)
        assert world.server.get(key) is not None
        assert await leader.assign(bundle(99)) == (other, 1)

        for broker in world.brokers.values():
            broker.refuses = ServiceNotReady("all of them are")
        with pytest.raises(ServiceNotReady, match="all of them are"):
            await leader.assign(bundle(50))
        for broker in world.brokers.values():
            broker.refuses = NamespaceNotFound("no such namespace")
            broker.taken.clear()
        with pytest.raises(NamespaceNotFound):
            await leader.assign(bundle(51))
        assert sum(len(broker.taken) for broker in world.brokers.values()) == 1

    simulated(scenario)


def test_a_broker_that_gives_no_answer_is_waited_for_once_in_a_while() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader.leader
        first = world.brokers[leader.choose(bundle(0), ())[0]]
        first.refuses = BrokerUnreachable("it stands still")
        for number in range(1, 11):
            assert (await leader.assign(bundle(number)))[0] != first.broker_id
        assert len(first.taken) == 1
        await asyncio.sleep(SILENT_S)
        first.refuses = None
        for number in range(11, 41):
            await leader.assign(bundle(number))
        assert len(first.taken) > 5

        for broker in world.brokers.values():
            broker.refuses = BrokerUnreachable("all stand still")
        with pytest.raises(BrokerUnreachable):
            await leader.assign(bundle(50))
        for broker in world.brokers.values():
            broker.refuses = None
        await leader.assign(bundle(50))  # where all are silent there is nobody to prefer

    simulated(scenario)


def test_a_failed_assignment_leaves_nothing_behind_that_would_count() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        term = world.leader.leader._term
        assert term is not None
        for broker in world.brokers.values():
            broker.refuses = MetadataError("away")
        before = {broker_id: term.load.usage_of(broker_id, 0.0) for broker_id in world.brokers}
        for number in range(5):
            with pytest.raises(MetadataError):
                await world.leader.leader.assign(bundle(number))
        assert {broker_id: term.load.usage_of(broker_id, 0.0) for broker_id in world.brokers} == before
        assert [term.counts.bundles((each, 1)) for each in world.brokers] == [0, 0, 0]
        assert not term._assigning

    simulated(scenario)


def test_callers_are_notified_when_the_leader_loses_its_term() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader
        for broker in world.brokers.values():
            broker.stuck = asyncio.Event()
        asking = asyncio.ensure_future(leader.leader.assign(bundle(0)))
        await asyncio.sleep(0.1)
        for session in list(leader.store._sessions):
            session.expire()
        with pytest.raises(ServiceNotReady, match="is no longer the leader"):
            await asking
        assert not leader.leader.leads

    simulated(scenario)


def test_a_broker_that_drains_is_given_nothing_and_its_bundles_find_another_one() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.add("d:80", draining=True)
        await asyncio.sleep(1)
        leader = world.leader.leader
        for number in range(20):
            assert (await leader.assign(bundle(number)))[0] != "d:80"
        await world.give(bundle(70), "d:80")
        await asyncio.sleep(1)
        assert leader.choose(bundle(70), ("d:80",))[0] != "d:80"

    simulated(scenario)


def test_isolation_policies_and_groups_hold_as_soon_as_they_are_set() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader, store = world.leader.leader, world.leader.store
        cluster = Cluster()
        policy = cluster.isolation_policies["p"]
        policy.namespaces.append("iso/.*")
        policy.primary.append("b")
        policy.parameters["min_limit"] = "1"
        await store.put(KEYS.cluster(CLUSTER), encode(cluster))
        await store.put(KEYS.cluster(f"{CLUSTER}-other"), encode(Cluster()))
        await asyncio.sleep(1)
        isolated = [bundle(number, "iso/n") for number in range(6)]
        free = [bundle(number, "free/n") for number in range(6)]
        for each in (*isolated, *free):
            await leader.assign(each)
        assert {world.owner(each) for each in isolated} == {"b:80"}
        assert {world.owner(each) for each in free} == {"a:80", "c:80"}
        await store.put(KEYS.cluster(CLUSTER), encode(Cluster()))
        for name in ("one", "two", "three"):
            namespace = NamespaceName.parse(f"group/{name}")
            await store.put(KEYS.namespace(namespace), encode(Namespace(anti_affinity_group="g")))
        await asyncio.sleep(1)
        owners = set()
        for name in ("one", "two", "three"):
            owners.add((await leader.assign((NamespaceName.parse(f"group/{name}"), bundle(0)[1])))[0])
        assert owners == set(world.brokers)

    simulated(scenario)


async def loaded(world: World, *of_a: float) -> dict[Bundle, float]:
    """Bundles with these loads at a:80, one small one with each of the others; all have reported."""
    loads = {bundle(number): load for number, load in enumerate(of_a)}
    for each in loads:
        await world.give(each, "a:80")
    await world.give(bundle(50), "b:80")
    await world.give(bundle(51), "c:80")
    await asyncio.sleep(1)
    return {**loads, bundle(50): 1.0, bundle(51): 1.0}


def report_all(world: World, loads: dict[Bundle, float], *silent: str) -> None:
    for broker in world.brokers.values():
        if broker.broker_id not in silent:
            owned = {each: loads[each] for each in world.owned_by(broker.broker_id)}
            world.leader.leader.report(broker.report(owned))


def test_load_is_evened_out_by_handing_bundles_over() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        report_all(world, loads)
        assert [load.report.broker_id for load in world.leader.leader.loads()] == ["a:80", "b:80", "c:80"]
        await asyncio.sleep(70)
        assert {each.to_broker_id for each in world.unloaded} == {"b:80", "c:80"}
        assert len(world.unloaded) == 3
        assert len(world.owned_by("a:80")) == 3
        for _ in range(60):
            report_all(world, loads)
            await asyncio.sleep(60)
        assert len(world.unloaded) == 3, "and then there is peace"

    simulated(scenario, QUICK)


def test_a_new_leader_waits_for_the_reports_of_all_before_it_moves_anything() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        report_all(world, loads, "c:80")
        await asyncio.sleep(65)
        assert world.unloaded == []
        report_all(world, loads)
        await asyncio.sleep(60)
        assert world.unloaded

    simulated(scenario, QUICK)


def test_a_broker_that_never_reports_does_not_stop_the_others_for_ever() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        report_all(world, loads, "c:80")
        await asyncio.sleep(200)
        assert {each.to_broker_id for each in world.unloaded} == {"b:80"}

    simulated(scenario, QUICK)


def test_a_move_that_fails_is_not_repeated_at_once() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        world.brokers["a:80"].refuses = ServiceNotReady("not now")
        for _ in range(3):
            report_all(world, loads)
            await asyncio.sleep(60)
        assert len(world.unloaded) == 3

    simulated(scenario, QUICK)


@pytest.mark.parametrize(
    "config",
    [
        LoadConfig(enabled=False, shedding=QUICK.shedding),
        LoadConfig(shedding=SheddingConfig(enabled=False, hits=1)),
    ],
)
def test_nothing_moves_where_that_is_switched_off(config: LoadConfig) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        report_all(world, loads)
        await asyncio.sleep(300)
        assert world.unloaded == []

    simulated(scenario, config)


def test_settings_that_change_while_it_leads_hold_at_the_next_comparison() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        report_all(world, loads)
        await asyncio.sleep(300)
        assert world.unloaded == []
        # As the dynamic configuration does it.
        object.__setattr__(world.config.shedding, "enabled", True)
        object.__setattr__(world.config.shedding, "interval_min", 0.1)
        await asyncio.sleep(7)
        assert world.unloaded, "it does not wait for the end of the former interval"

    simulated(
        scenario,
        LoadConfig(shedding=SheddingConfig(enabled=False, hits=1, history=0.0, interval_min=60.0)),
    )


def test_bundles_with_policies_move_only_where_an_operator_wants_that() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        namespace = bundle(0)[0]
        await world.leader.store.put(KEYS.namespace(namespace), encode(Namespace(anti_affinity_group="g")))
        await asyncio.sleep(1)
        report_all(world, loads)
        await asyncio.sleep(70)
        with_policies = world.config.shedding.with_policies
        assert bool(world.unloaded) == with_policies

    simulated(scenario, QUICK)
    simulated(scenario, LoadConfig(shedding=SheddingConfig(hits=1, history=0.0, with_policies=True)))


def test_a_bundle_does_not_move_to_where_more_of_its_group_are() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        loads = await loaded(world, *[10.0] * 6)
        namespace, other = bundle(0)[0], NamespaceName("t", "of-the-group")
        for each in (namespace, other):
            await world.leader.store.put(KEYS.namespace(each), encode(Namespace(anti_affinity_group="g")))
        for number, broker_id in ((60, "b:80"), (61, "c:80")):
            await world.give((other, bundle(number)[1]), broker_id)
            loads[other, bundle(number)[1]] = 1.0
        await asyncio.sleep(1)
        report_all(world, loads)
        await asyncio.sleep(70)
        assert world.unloaded == []

    simulated(scenario, LoadConfig(shedding=SheddingConfig(hits=1, history=0.0, with_policies=True)))


def test_reports_of_former_runs_and_strangers_are_not_listened_to() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader.leader
        report = world.brokers["a:80"].report({})
        report.run = 99
        leader.report(report)
        report = world.brokers["a:80"].report({})
        report.broker_id = "stranger:80"
        leader.report(report)
        assert leader.loads() == []
        leader.report(world.brokers["a:80"].report({}))
        await asyncio.sleep(30)
        [load] = leader.loads()
        assert load.age_ms == 30_000
        other = next(each for each in world.brokers.values() if each is not world.leader)
        leader.report(other.report({}))
        await world.kill(other.broker_id)
        await asyncio.sleep(130)
        assert other.broker_id not in {each.report.broker_id for each in leader.loads()}

    simulated(scenario)


def test_bundles_of_a_namespace_are_spread_evenly_unless_told_otherwise() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        leader = world.leader.leader
        for broker in world.brokers.values():
            broker.percent = 60.0 if broker.broker_id == "a:80" else 1.0
            leader.report(broker.report({}))
        owners = [(await leader.assign(bundle(number)))[0] for number in range(6)]
        assert owners.count("a:80") == (2 if world.config.placement.evenly else 0)

    simulated(scenario)
    simulated(scenario, LoadConfig(placement=PlacementConfig(evenly=False)))
