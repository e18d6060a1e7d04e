"""Whenever the power goes, or a job dies, while ledgers are offloaded and leave: nothing is lost or twice."""

from __future__ import annotations

import pytest

from tests.simulation.cold_workload import ColdWorkload
from tests.simulation.power_loss import cut_everywhere


@pytest.mark.full
@pytest.mark.seeds(1, full=4, nightly=24)
def test_an_offloaded_ledger_survives_a_power_loss_at_any_step(seed: int) -> None:
    workload = ColdWorkload(seed)
    report = cut_everywhere(workload, seed, every=10 if seed else 2)
    assert report.cuts > 150
    assert workload.losses, "there were two owners"
    assert workload.left or seed > 3, "a ledger left storage"
