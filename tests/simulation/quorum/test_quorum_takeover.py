"""A topic on bookies, with cursors, that one owner takes over from the next under every kind of trouble."""

from __future__ import annotations

import pytest

from tests.simulation.quorum.running import Outcome, run_cluster
from tests.simulation.quorum.topic_workload import TopicWorkload


def run_topic(seed: int) -> Outcome:
    """One run of owners over a topic."""
    return run_cluster(seed, lambda cluster: TopicWorkload(cluster).run())


@pytest.mark.seeds(4, full=10, nightly=60)
def test_every_promise_of_a_topic_on_bookies_holds(seed: int) -> None:
    run_topic(seed)


@pytest.mark.full
def test_the_same_seed_gives_the_same_trace_hash() -> None:
    first = [run_topic(seed).trace for seed in range(3)]
    assert first == [run_topic(seed).trace for seed in range(3)]
    assert len(set(first)) == 3
