"""The leader explains where a bundle is, and what would move it: each reason from a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.broker.load.config import LoadConfig, SheddingConfig, SplittingConfig
from magnetar.broker.load.explanation import PlacementCode, what_would_split
from magnetar.broker.load.shedding import Shedder
from magnetar.broker.load.splitting import SplitCandidate, Splitter
from magnetar.broker.reason import Reason
from magnetar.common.control.control_pb2 import Load
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import Cluster, encode

from tests.unit.broker.load.clusters import bundle
from tests.unit.broker.load.test_leader import QUICK, simulated, three
from tests.unit.broker.load.world import CLUSTER, KEYS, World


def explained(world: World) -> tuple[dict[str, Reason], dict[str, Reason]]:
    """The reasons by their codes: why the bundle is where it is, and what would move it."""
    here, moves, _ = world.leader.leader.explain(bundle(0))
    assert all(each.next for each in (*here, *moves))
    return {each.code: each for each in here}, {each.code: each for each in moves}


async def report(world: World, **percent: float) -> None:
    """Has each broker report a load, by the first letter of its id."""
    for broker_id, broker in world.brokers.items():
        broker.percent = percent[broker_id[0]]
        world.leader.leader.report(broker.report({}))
    await asyncio.sleep(0)


def test_a_bundle_without_an_owner_and_one_with_a_better_place() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await report(world, a=10, b=30, c=50)
        here, moves = explained(world)
        assert list(here) == ["no_owner", "best_choice"]
        assert here["best_choice"].data == {"broker": "a:80"}
        assert moves == {}
        assert world.owner(bundle(0)) is None, "it is explained and not assigned"
        await world.give(bundle(0), "c:80")
        await asyncio.sleep(1)
        here, moves = explained(world)
        assert list(here) == ["owned", "better_choice"]
        assert (here["owned"].data["broker"], here["better_choice"].data) == ("c:80", {"broker": "a:80"})
        assert list(moves) == ["load", "unload"]
        assert moves["load"].data == {"percent": 50.0, "limit": 40.0}
        assert moves["load"].stops, "above 30 percent on average, and a threshold of 10"
        assert world.unloaded == []

    simulated(scenario)


def test_what_load_says_is_what_moves_bundles() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.give(bundle(0), "c:80")
        await world.give(bundle(1), "c:80")
        await asyncio.sleep(1)
        for broker in world.brokers.values():
            broker.percent = 10.0
            loads = {bundle(0): 15.0, bundle(1): 15.0} if broker.broker_id == "c:80" else {}
            world.leader.leader.report(broker.report(loads))
        _, moves = explained(world)
        assert moves["load"].stops
        await asyncio.sleep(QUICK.shedding.interval_min * 60 + 5)
        assert [each.bundle for each in world.unloaded] == [str(bundle(0)[1])]
        _, moves = explained(world)
        assert moves["resting"].data["seconds"] > 0
        assert not moves["load"].stops

    simulated(scenario, QUICK)


def test_a_draining_broker_and_policies_that_do_not_allow_it() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.add("d:80", draining=True)
        await world.give(bundle(0), "d:80")
        cluster = Cluster()
        cluster.isolation_policies["p"].namespaces.append("t/.*")
        cluster.isolation_policies["p"].primary.append("a")
        await world.leader.store.put(KEYS.cluster(CLUSTER), encode(cluster))
        await asyncio.sleep(1)
        here, moves = explained(world)
        assert list(here) == ["owned", "better_choice"]
        assert here["better_choice"].data == {"broker": "a:80"}
        assert list(moves) == ["draining", "not_allowed", "policies_pin", "unload"]
        assert moves["draining"].stops
        await world.kill("a:80")
        await asyncio.sleep(15)
        here, _ = explained(world)
        assert "no_choice" in here

    simulated(scenario)


def test_without_balancing_load_moves_nothing() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.give(bundle(0), "c:80")
        await asyncio.sleep(1)
        _, moves = explained(world)
        assert list(moves) == ["balancing_off", "unload"]

    simulated(scenario, LoadConfig(shedding=SheddingConfig(enabled=False)))


def test_only_the_leader_explains() -> None:
    async def scenario(world: World) -> None:
        await three(world)
        other = next(each for each in world.brokers.values() if each is not world.leader)
        with pytest.raises(ServiceNotReady, match="is not the leader"):
            other.leader.explain(bundle(0))

    simulated(scenario)


SPLITTING = SplittingConfig(topics_max=10, bundles_max=8, hits=1)


@pytest.mark.parametrize(
    ("topics", "bundles", "code", "splits"),
    [
        (11, 4, "split", True),
        (10, 4, "split", False),
        (11, 8, "bundles_max", False),
        (1, 4, "single_topic", False),
        (0, 4, "single_topic", False),
    ],
)
def test_what_would_split_a_bundle_is_what_splits_it(
    topics: int, bundles: int, code: str, splits: bool
) -> None:
    load = Load(topics=topics, producers=5000 if topics == 1 else 0)
    (found,) = what_would_split(load, bundles, LoadConfig(splitting=SPLITTING))
    assert (found.code, found.stops) == (code, splits)
    due = Splitter(SPLITTING).due([SplitCandidate(bundle(0), load, bundles)])
    assert bool(due) == splits
    if code == "split":
        assert found.data["percent"]["topics"] == topics * 10


def test_without_splitting_no_bundle_is_split() -> None:
    for config in (LoadConfig(enabled=False), LoadConfig(splitting=SplittingConfig(enabled=False))):
        (found,) = what_would_split(Load(topics=5000), 4, config)
        assert (found.code, found.stops) == ("splitting_off", False)


@pytest.mark.parametrize(
    ("loads", "limit"),
    [([10, 20, 30], 30), ([90, 91, 92], 100), ([10, 90], 60), ([80, 88, 96], 90), ([5], None), ([], None)],
)
def test_the_limit_is_beyond_the_average_or_overload(loads: list[float], limit: float | None) -> None:
    found = Shedder(LoadConfig()).limit(loads)
    assert found == (None if limit is None else pytest.approx(limit))


def test_each_code_is_in_the_page() -> None:
    page = (Path(__file__).parents[4] / "docs/explain.md").read_text()
    assert all(f"`{code}`" in page for code in PlacementCode)
