"""A tiny run of `bench.scale`: every scenario ends with each bundle served by exactly one live broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.common.errors import MetadataError
from magnetar.sim.loop import SimLoop, run

from bench.scale.costs import Costs
from bench.scale.etcd_model import EtcdModel, EtcdStore
from bench.scale.scenarios import STEPS, Outcome, cold_start, simulate
from bench.scale.world import Size, World


def outcomes(*, shared: bool, costs: Costs | None = None) -> dict[str, Outcome]:
    found: list[Outcome] = []
    size = Size(brokers=10, bundles=160, shared=shared)
    simulate(size, costs or Costs(), lambda text: None, found.append)
    assert len(found) == len(STEPS)
    return {each.scenario: each for each in found}


@pytest.mark.parametrize("shared", [False, True])
def test_no_bundle_is_lost_and_none_is_served_twice(shared: bool) -> None:
    found = outcomes(shared=shared)
    assert [each.wrong for each in found.values()] == [()] * len(STEPS)
    assert all(each.traffic.unanswered == 0 for each in found.values())
    assert found["cold start"].traffic.written_keys >= 160 + 10
    assert found["cold start"].longest_wait_s < 1.0, "nothing is overloaded"
    lost = found["a rack is lost"]
    assert 10.0 < lost.longest_wait_s < 15.0, "the session of a lost broker has to end first"
    assert lost.traffic.writes >= 16
    assert found["rolling upgrade"].traffic.writes > 160, "each bundle moves once at least"
    assert "after" in found["skewed load"].note


def test_processes_that_share_their_mirrors_ask_for_what_they_would_with_mirrors_of_their_own() -> None:
    own, shared = outcomes(shared=False), outcomes(shared=True)
    for scenario in ("cold start", "a rack is lost", "rolling upgrade"):
        one, other = own[scenario].traffic, shared[scenario].traffic
        assert other.writes == pytest.approx(one.writes, rel=0.2), scenario
        assert other.events == pytest.approx(one.events, rel=0.2), scenario


def test_every_bundle_is_served_in_the_end_although_the_leader_and_etcd_are_far_too_slow() -> None:
    slow = replace(Costs(), choose_s=0.5, etcd_write_s=0.1)
    loop = SimLoop(1)

    async def main() -> Outcome:
        world = World(loop, Size(brokers=6, bundles=128, shared=True), slow)
        found = await cold_start(world)
        await world.end()
        return found

    found = run(loop, main())
    assert found.wrong == ()
    assert found.longest_wait_s > 3.0, "the leader does not answer in time"


@pytest.mark.full
def test_the_leader_of_very_many_brokers_keeps_its_connections_to_them() -> None:
    loop = SimLoop(1, traced=False)

    async def main() -> Outcome:
        world = World(loop, Size(brokers=300, bundles=900, shared=True), Costs())
        found = await cold_start(world)
        await world.end()
        return found

    assert run(loop, main()).connects <= 310, "one connection to each broker, not one for each bundle"


def test_etcd_with_too_much_to_do_is_no_longer_waited_for() -> None:
    loop = SimLoop(1)

    async def main() -> EtcdModel:
        etcd = EtcdModel(replace(Costs(), etcd_write_s=1.0))
        store = EtcdStore(etcd)
        writes = (store.put(f"/key-{number}", b"") for number in range(20))
        answers = await asyncio.gather(*writes, return_exceptions=True)
        assert any(isinstance(each, MetadataError) for each in answers)
        return etcd

    etcd = run(loop, main())
    assert etcd.traffic.writes + etcd.traffic.unanswered == 20
    assert etcd.traffic.writes == 6
