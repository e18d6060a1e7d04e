"""A transaction coordinator on bookies whose owners change under every kind of trouble."""

from __future__ import annotations

import pytest
from magnetar.broker.transactions import coordinator

from tests.simulation.quorum.coordinator_workload import CoordinatorOverBookies
from tests.simulation.quorum.running import run_cluster


@pytest.mark.seeds(1, full=10, nightly=80)
def test_every_promise_of_a_coordinator_on_bookies_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "GRACE_S", 1.0)  # idle bookies cost most of a run
    run_cluster(seed, lambda cluster: CoordinatorOverBookies(cluster).run())
