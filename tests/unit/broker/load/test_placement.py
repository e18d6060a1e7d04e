"""Who is given a bundle: what must be, what should be, and then the least load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.config import LoadConfig, PlacementConfig
from magnetar.broker.load.load_report import OwnedLoad, Usage, make_report
from magnetar.broker.load.placement import EQUAL_PERCENT, Candidate, choose
from magnetar.common.control.control_pb2 import Load

from tests.unit.broker.load.clusters import bundle

CONFIG = PlacementConfig()
BY_LOAD = PlacementConfig(evenly=False)


def anywhere(candidate: Candidate) -> bool:
    return True


def except_for(*broker_ids: str) -> Callable[[Candidate], bool]:
    return lambda candidate: candidate.broker_id not in broker_ids


def test_the_least_loaded_broker_is_given_the_bundle() -> None:
    brokers = [Candidate("a", 40, bundles=1), Candidate("b", 20, bundles=9), Candidate("c", 60)]
    assert choose(brokers, BY_LOAD, anywhere) == "b"
    assert choose(brokers, BY_LOAD, except_for("b")) == "a"


def test_among_equal_loads_the_broker_with_fewest_bundles_is_chosen() -> None:
    brokers = [Candidate("a", 20, bundles=5), Candidate("b", 23, bundles=2), Candidate("c", 30)]
    assert choose(brokers, BY_LOAD, anywhere) == "b"


def test_draining_or_isolated_brokers_get_no_bundle() -> None:
    brokers = [Candidate("a", draining=True), Candidate("b", 99)]
    assert choose(brokers, CONFIG, anywhere) == "b"
    assert choose(brokers, CONFIG, except_for("b")) is None
    assert choose([], CONFIG, anywhere) is None


def test_the_bundles_of_a_namespace_are_spread_before_load_counts_but_not_onto_who_has_too_much() -> None:
    brokers = [Candidate("a", 10, of_namespace=2), Candidate("b", 70, of_namespace=1)]
    assert choose(brokers, CONFIG, anywhere) == "b"
    assert choose(brokers, BY_LOAD, anywhere) == "a"
    overloaded = [brokers[0], replace(brokers[1], usage=86)]
    assert choose(overloaded, CONFIG, anywhere) == "a"
    assert choose([replace(each, usage=90) for each in brokers], CONFIG, anywhere) == "b"
    full = [replace(brokers[1], topics=50_000), brokers[0]]
    assert choose(full, CONFIG, anywhere) == "a"


def test_namespaces_of_a_group_keep_apart_by_broker_or_by_failure_domain() -> None:
    brokers = [
        Candidate("a", 0, of_group=1, domain="x"),
        Candidate("b", 0, domain="x"),
        Candidate("c", 80, domain="y"),
    ]
    assert choose(brokers, CONFIG, anywhere) == "b"
    domains = replace(CONFIG, failure_domains=True)
    assert choose(brokers, domains, anywhere) == "c"
    crowded = [replace(each, of_group=2) for each in brokers]
    assert choose(crowded, CONFIG, anywhere) == "a", "where none is apart, somebody has to serve it"


candidates = st.lists(
    st.builds(
        Candidate,
        broker_id=st.text("abcdefgh", min_size=1, max_size=3),
        usage=st.floats(0, 120),
        topics=st.integers(0, 60_000),
        bundles=st.integers(0, 50),
        of_namespace=st.integers(0, 3),
        draining=st.booleans(),
        of_group=st.integers(0, 2),
        domain=st.sampled_from(["", "x", "y"]),
    ),
    max_size=8,
    unique_by=lambda each: each.broker_id,
)
configs = st.builds(PlacementConfig, evenly=st.booleans(), failure_domains=st.booleans())


@given(candidates, configs, st.sets(st.text("abcdefgh", min_size=1, max_size=3)))
def test_chosen_broker_is_eligible_and_no_other_is_better(
    brokers: list[Candidate], config: PlacementConfig, forbidden: set[str]
) -> None:
    found = choose(brokers, config, except_for(*forbidden))
    able = [each for each in brokers if not each.draining and each.broker_id not in forbidden]
    assert (found is None) == (not able)
    assert choose(brokers[::-1], config, except_for(*forbidden)) == found, "the order says nothing"
    if found is None:
        return
    chosen = next(each for each in able if each.broker_id == found)
    for other in able:
        worse = (
            other.topics >= config.topics_max > chosen.topics
            or other.usage >= config.overloaded_percent > chosen.usage
            or other.of_group > chosen.of_group
            or (config.failure_domains and other.domain != chosen.domain)
            or (config.evenly and other.of_namespace > chosen.of_namespace)
        )
        much_better = (
            other.usage < chosen.usage - EQUAL_PERCENT
            and other.topics < config.topics_max
            and other.of_group <= chosen.of_group
            and other.of_namespace <= chosen.of_namespace
            and (other.domain == chosen.domain or not config.failure_domains)
        )
        assert not much_better or worse, (chosen, other)


def test_a_burst_of_assignments_spreads_although_no_report_has_seen_any_of_them() -> None:
    config = LoadConfig()
    known = ClusterLoad(config)
    for number, broker_id in enumerate("abc"):
        owned = [OwnedLoad(*bundle(100 * number + at), 1, Load(message_rate_in=10)) for at in range(5)]
        usage = Usage(30.0 + number, 0, 0)
        known.report(
            make_report(broker_id, 1, usage, owned, bundles_max=10, taken_ms=0, draining=False), now=0
        )
    counts: Counter[str] = Counter()
    for number in range(60):
        brokers = [Candidate(each, known.usage_of(each, 0.0)[0], bundles=5 + counts[each]) for each in "abc"]
        chosen = choose(brokers, PlacementConfig(evenly=False), anywhere)
        assert chosen is not None
        counts[chosen] += 1
        known.given(bundle(1_000 + number), chosen, now=0.0)
    assert max(counts.values()) - min(counts.values()) <= 2, counts
