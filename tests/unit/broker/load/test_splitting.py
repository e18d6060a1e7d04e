"""Which bundles are split, when, and where: the cut balances what was measured."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from magnetar.broker.load.config import SplittingConfig
from magnetar.broker.load.splitting import (
    SplitCandidate,
    Splitter,
    balanced_cut,
    has_too_much,
    share_of_limits,
)
from magnetar.common.control.control_pb2 import Load
from magnetar.common.naming.bundle_range import RING_END, BundleRange

from tests.unit.broker.load.clusters import bundle

CONFIG = SplittingConfig()
MB = 1024 * 1024


def busy(number: int = 0, rate: float = 40_000.0, bundles: int = 4) -> SplitCandidate:
    return SplitCandidate(bundle(number), Load(message_rate_in=rate, topics=10), bundles)


def test_each_limit_by_itself_is_too_much() -> None:
    within = Load(
        topics=1_000,
        producers=600,
        consumers=400,
        message_rate_in=20_000,
        message_rate_out=10_000,
        byte_rate_in=60.0 * MB,
        byte_rate_out=40.0 * MB,
    )
    assert not has_too_much(within, CONFIG)
    for field, value in (
        ("topics", 1_001),
        ("consumers", 401),
        ("message_rate_out", 10_001),
        ("byte_rate_in", 60.1 * MB),
    ):
        beyond = Load()
        beyond.CopyFrom(within)
        setattr(beyond, field, value)
        assert has_too_much(beyond, CONFIG), field


def test_a_bundle_with_one_topic_is_never_split() -> None:
    assert not has_too_much(Load(message_rate_in=1e9, topics=1), CONFIG)


def test_a_bundle_is_split_after_it_had_too_much_at_several_looks_in_a_row() -> None:
    splitter = Splitter(CONFIG)
    assert splitter.due([busy()]) == []
    assert splitter.due([busy()]) == []
    assert splitter.due([busy(rate=10.0)]) == [], "a peak that is over does not count on"
    assert splitter.due([busy()]) == []
    assert splitter.due([busy()]) == []
    assert splitter.due([busy()]) == [bundle(0)]
    assert splitter.due([busy()]) == [], "it begins anew"


def test_splits_of_one_look_are_bounded_and_the_most_loaded_come_first() -> None:
    splitter = Splitter(SplittingConfig(hits=1, at_once_max=3))
    due = splitter.due([busy(number, rate=40_000.0 + number) for number in range(10)])
    assert due == [bundle(9), bundle(8), bundle(7)]


def test_a_namespace_is_never_split_into_more_bundles_than_it_may_have() -> None:
    splitter = Splitter(SplittingConfig(hits=1))
    assert splitter.due([busy(bundles=128)]) == []
    assert len(splitter.due([busy(number, bundles=126) for number in range(10)])) == 2


@given(
    st.integers(0, RING_END - 1).flatmap(
        lambda lower: st.tuples(st.just(lower), st.integers(lower + 1, RING_END))
    ),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e6)), max_size=30),
)
@example((RING_END - 1, RING_END), [(0.0, 1.0), (1.0, 1.0)])
@example((0, RING_END), [(0.0, 5.0), (0.0, 5.0)])
def test_the_cut_lies_within_has_topics_on_both_sides_and_no_other_cut_balances_better(
    ends: tuple[int, int], placed: list[tuple[float, float]]
) -> None:
    of = BundleRange(*ends)
    last = of.upper if of.upper == RING_END else of.upper - 1
    topics = [(of.lower + int(at * (last - of.lower)), load) for at, load in placed]
    assert all(ring_hash in of for ring_hash, _ in topics)
    hashes = sorted({ring_hash for ring_hash, _ in topics})

    def difference(boundary: int) -> float:
        return abs(
            sum(load for ring_hash, load in topics if ring_hash < boundary)
            - sum(load for ring_hash, load in topics if ring_hash >= boundary)
        )

    cuts = [boundary for boundary in hashes[1:] if of.lower < boundary < of.upper]
    found = balanced_cut(of, topics)
    if not found:
        assert not cuts
        return
    [boundary] = found
    assert of.lower < boundary < of.upper
    assert hashes[0] < boundary <= hashes[-1]
    tolerance = 1e-6 * (1 + sum(load for _, load in topics))
    assert all(difference(boundary) <= difference(other) + tolerance for other in cuts)


def test_a_cut_follows_the_load_and_not_the_number_of_topics() -> None:
    of = BundleRange(0, 1000)
    quiet = [(at, 1.0) for at in range(0, 900, 10)]
    assert balanced_cut(of, [*quiet, (950, 100.0)]) == [920]
    assert balanced_cut(of, [(at, 0.0) for at, _ in quiet]) == [445]
    assert balanced_cut(of, [(5, 1.0)]) == []
    assert balanced_cut(of, [(5, 1.0), (5, 9.0)]) == [], "topics with the same hash stay together"
    assert balanced_cut(of, []) == []


def test_splitting_again_and_again_isolates_a_topic_that_has_too_much_alone_and_then_ends() -> None:
    config = SplittingConfig(hits=1)
    topics = [(at * 1000, 90_000.0 if at == 37 else 100.0) for at in range(100)]
    bundles, splits = [BundleRange(0, 100_000)], 0

    def within(of: BundleRange) -> list[tuple[int, float]]:
        return [(ring_hash, load) for ring_hash, load in topics if ring_hash in of]

    while True:
        splitter = Splitter(config)
        loads = {
            of: Load(message_rate_in=sum(load for _, load in within(of)), topics=len(within(of)))
            for of in bundles
        }
        due = splitter.due(
            SplitCandidate((bundle(0)[0], of), load, len(bundles)) for of, load in loads.items()
        )
        if not due:
            break
        for _, of in due:
            [boundary] = balanced_cut(of, within(of))
            bundles.remove(of)
            bundles += [BundleRange(of.lower, boundary), BundleRange(boundary, of.upper)]
            splits += 1
    assert splits <= 2
    assert sorted(len(within(of)) for of in bundles) == [1, 37, 62]


def test_a_topic_is_measured_by_what_its_bundle_has_too_much_of() -> None:
    topic = Load(topics=1, producers=250, consumers=250, message_rate_out=15_000, byte_rate_in=50.0 * MB)
    assert share_of_limits(topic, CONFIG, of=Load(topics=2_000)) == 0.001
    assert share_of_limits(topic, CONFIG, of=Load(message_rate_in=60_000, consumers=2_000)) == 1.0
    assert share_of_limits(topic, CONFIG, of=Load(topics=1_000)) == 0.0
