"""A compacted topic on bookies, with owners that follow each other, under every kind of trouble."""

from __future__ import annotations

import pytest

from tests.simulation.quorum.cluster import Cluster
from tests.simulation.quorum.compaction_workload import QuorumCompaction
from tests.simulation.quorum.running import run_cluster


@pytest.mark.seeds(2, full=3, nightly=40)
def test_every_promise_of_a_compacted_topic_on_bookies_holds(seed: int) -> None:
    runs: list[QuorumCompaction] = []

    async def main(cluster: Cluster) -> None:
        runs.append(QuorumCompaction(cluster))
        await runs[0].run()

    run_cluster(seed, main)
    workload = runs[0].workload
    assert workload.checker.history, "something was published"
    assert workload.checker.views >= 1, "a view was compared with the model"
    assert workload.runs > workload.failures
