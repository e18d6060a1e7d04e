"""A transaction has one outcome, which every topic learns, whenever the power goes or owners change."""

from __future__ import annotations

import pytest

from tests.simulation.coordinator_workload import CoordinatorWorkload
from tests.simulation.power_loss import cut_everywhere


@pytest.mark.seeds(1, full=5, nightly=40)
def test_outcomes_survive_a_power_loss_at_any_write_sync_or_commit(seed: int) -> None:
    workload = CoordinatorWorkload(seed)
    report = cut_everywhere(workload, seed, every=8)
    assert report.cuts > 50
    assert workload.rolls > 2
    assert workload.checker.answered


@pytest.mark.seeds(1, full=5, nightly=40)
def test_outcomes_survive_lost_answers_of_metadata_and_a_power_loss(seed: int) -> None:
    workload = CoordinatorWorkload(seed, unknown_outcomes=True)
    report = cut_everywhere(workload, seed, every=8)
    assert report.cuts > 50
    assert workload.checker.answered
