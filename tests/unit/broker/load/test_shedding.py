"""Bundles move when load shifts, few of them, to where it helps, and then they stay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from magnetar.broker.load.cluster_load import BrokerLoad
from magnetar.broker.load.config import LoadConfig, PlacementConfig, SheddingConfig
from magnetar.broker.load.shedding import BUNDLES_MAX, Move, Shedder
from magnetar.common.cluster.bundle_owners import Bundle

from tests.unit.broker.load.clusters import Cluster, bundle

SEEDS = range(2)
AT_ONCE = LoadConfig(shedding=SheddingConfig(hits=1))


def broker(broker_id: str, *shares: float, start: int = 0, draining: bool = False) -> BrokerLoad:
    load = sum(shares)
    parts = {bundle(start + at): share / load if load else 0.0 for at, share in enumerate(shares)}
    return BrokerLoad(broker_id, load, load, len(shares), 0.0, parts, draining)


def anywhere(name: Bundle, broker_id: str) -> bool:
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_a_balanced_cluster_is_left_alone_however_long_it_is_watched(seed: int) -> None:
    cluster = Cluster(seed, noise=4.0)
    for name in "abcd":
        cluster.add(name, *[5.0] * 10)
    assert cluster.run(minutes=240) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_load_that_shifts_moves_few_bundles_and_none_in_circles(seed: int) -> None:
    cluster = Cluster(seed)
    for name in "abc":
        cluster.add(name, *[3.0] * 12)
    assert cluster.run(minutes=20) == []
    for shift in range(5):
        # Somebody's topics become busy, and those that were so become quiet.
        for each in cluster.load:
            cluster.load[each] = 2.0
        for each in [each for each, owner in cluster.owner.items() if owner == "abc"[shift % 3]][:8]:
            cluster.load[each] = 8.0
        before = cluster.spread()
        assert before >= 48
        moves = cluster.run(minutes=130)
        assert cluster.spread() <= 20, f"shift {shift}: {before} -> {cluster.percent()}"
        assert 3 <= len(moves) <= 8, f"shift {shift} took {len(moves)} moves"
        assert len({move.bundle for move in moves}) == len(moves), "nothing moves twice for one shift"
    assert cluster.run(minutes=120) == [], "and then there is peace"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_that_swings_faster_than_bundles_should_move_moves_next_to_nothing(seed: int) -> None:
    cluster = Cluster(seed)
    for name in "ab":
        cluster.add(name, *[4.0] * 10)
    for swing in range(60):
        for each, owner in cluster.owner.items():
            cluster.load[each] = 6.0 if owner == "ab"[swing % 2] else 2.0
        cluster.run(minutes=2)
    assert len(cluster.moves) <= 2, "two hours, 60 swings of 40 points"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_joins_is_given_its_part_and_the_rest_stays(seed: int) -> None:
    cluster = Cluster(seed)
    for name in "abcd":
        cluster.add(name, *[3.0] * 20)
    cluster.run(minutes=30)
    cluster.add("new")
    moves = cluster.run(minutes=120)
    assert all(move.to_broker == "new" for move in moves)
    percent = cluster.percent()
    assert percent["new"] >= 30
    assert cluster.spread() <= 25
    assert len(moves) <= 16
    assert cluster.run(minutes=120) == []


@pytest.mark.parametrize("seed", [1])
def test_new_broker_gets_bundles_without_an_overloaded_broker(seed: int) -> None:
    cluster = Cluster(seed)
    for number in range(12):
        cluster.add(f"b{number:02}", *[6.0] * 10)
    cluster.run(minutes=10)
    cluster.add("new")
    cluster.run(minutes=90)
    assert cluster.percent()["new"] >= 35
    assert min(cluster.percent().values()) >= 35, "nobody who helped is the next one with too little"
    assert cluster.run(minutes=120) == []


def test_a_bundle_whose_load_is_the_whole_difference_stays() -> None:
    cluster = Cluster(1)
    cluster.add("a", 70.0)
    cluster.add("b", 5.0)
    assert cluster.run(minutes=120) == []
    cluster = Cluster(1)
    cluster.add("a", 60.0, 20.0)
    cluster.add("b", 5.0)
    moves = cluster.run(minutes=120)
    assert [(move.to_broker, cluster.load[move.bundle]) for move in moves] == [("b", 20.0)]


def test_nothing_moves_before_so_many_comparisons_in_a_row_found_too_much() -> None:
    shedder = Shedder(LoadConfig())
    high = [broker("a", *[10.0] * 8), broker("b", 10.0, start=20)]
    even = [broker("a", *[10.0] * 8), broker("b", 75.0, start=20)]
    for at, brokers, moved in ((0, high, 0), (60, high, 0), (120, even, 0), (180, high, 0), (240, high, 0)):
        assert len(shedder.moves(brokers, at, anywhere)) == moved
    assert len(shedder.moves(high, 300, anywhere)) == 3


def test_broker_rests_after_giving_or_taking_bundles() -> None:
    shedder = Shedder(AT_ONCE)
    brokers = [broker("a", *[10.0] * 8), broker("b", 10.0, start=20), broker("c", 45.0, start=30)]
    assert {(move.from_broker, move.to_broker) for move in shedder.moves(brokers, 0, anywhere)} == {
        ("a", "b")
    }
    for at in range(60, 180, 60):
        assert shedder.moves(brokers, at, anywhere) == []
    assert shedder.moves(brokers, 180, anywhere)


def test_a_bundle_rests_longer_than_its_brokers() -> None:
    shedder = Shedder(AT_ONCE)
    brokers = [broker("a", 30.0, 30.0, 2.0), broker("b", start=20)]
    [first] = shedder.moves(brokers, 0, anywhere)
    [second] = shedder.moves(brokers, 600, anywhere)
    assert first.bundle != second.bundle
    assert shedder.moves(brokers, 1200, anywhere) == []
    assert shedder.moves(brokers, 2400, anywhere)[0].bundle == first.bundle


def test_brokers_and_bundles_of_one_comparison_are_bounded() -> None:
    config = replace(AT_ONCE, shedding=SheddingConfig(hits=1, brokers_max=2))
    brokers = [broker(f"full{at}", *[1.0] * 80, start=100 * at) for at in range(4)]
    brokers += [broker(f"empty{at}", start=1000) for at in range(4)]
    moves = Shedder(config).moves(brokers, 0, anywhere)
    assert len({move.from_broker for move in moves}) == 2
    assert len(moves) == 2 * BUNDLES_MAX


def test_a_broker_stuck_with_one_large_bundle_does_not_keep_others_from_giving() -> None:
    config = replace(AT_ONCE, shedding=SheddingConfig(hits=1, brokers_max=1))
    brokers = [broker("stuck", 95.0), broker("full", *[10.0] * 9, start=10), broker("empty", start=40)]
    moves = Shedder(config).moves(brokers, 0, anywhere)
    assert moves
    assert {(move.from_broker, move.to_broker) for move in moves} == {("full", "empty")}


def test_nothing_moves_to_where_it_is_not_allowed_nor_to_or_from_a_broker_that_drains() -> None:
    brokers = [broker("a", *[10.0] * 8), broker("b", 1.0, start=20), broker("c", 20.0, start=30)]
    moves = Shedder(AT_ONCE).moves(brokers, 0, lambda name, broker_id: broker_id == "c")
    assert moves
    assert {move.to_broker for move in moves} == {"c"}
    assert Shedder(AT_ONCE).moves(brokers, 0, lambda name, broker_id: False) == []
    drained = [brokers[0], broker("b", 1.0, start=20, draining=True)]
    assert Shedder(AT_ONCE).moves(drained, 0, anywhere) == []
    assert Shedder(AT_ONCE).moves([], 0, anywhere) == []


def test_an_overloaded_broker_gives_although_the_average_is_high() -> None:
    brokers = [
        broker("a", *[9.0] * 11),
        broker("b", *[9.0] * 9, start=20),
        broker("c", *[9.0] * 10, start=40),
    ]
    config = replace(LoadConfig(), shedding=SheddingConfig(hits=1, threshold_percent=10))
    moves = Shedder(config).moves(brokers, 0, anywhere)
    assert [(move.from_broker, move.to_broker) for move in moves] == [("a", "b")]


def test_overload_threshold_may_change_at_runtime() -> None:
    config = LoadConfig(
        shedding=SheddingConfig(hits=1, threshold_percent=30),
        placement=PlacementConfig(overloaded_percent=100),
    )
    brokers = [
        broker("a", *[16.0] * 6),
        broker("b", *[17.0] * 3, start=20),
        broker("c", *[16.0] * 6, start=40),
    ]
    shedder = Shedder(config)
    assert shedder.moves(brokers, 0, anywhere) == []
    object.__setattr__(config.placement, "overloaded_percent", 85)
    assert {move.to_broker for move in shedder.moves(brokers, 60, anywhere)} == {"b"}


def test_a_move_says_what_it_carries() -> None:
    brokers = [broker("a", 30.0, 20.0, 8.0), broker("b", start=9)]
    [first, second] = Shedder(AT_ONCE).moves(brokers, 0, anywhere)
    assert first == Move(bundle(1), 20.0, "a", "b")
    assert second == Move(bundle(2), 8.0, "a", "b")
