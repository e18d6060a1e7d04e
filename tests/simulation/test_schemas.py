"""Versions of a topic's schemas have one order, whatever becomes of answers, watches and brokers."""

from __future__ import annotations

import pytest

from tests.simulation.schema_workload import simulated


@pytest.mark.seeds(3, full=10, nightly=100)
def test_concurrent_schemas_get_one_order_and_each_fits_the_one_before(seed: int) -> None:
    workload = simulated(seed, faults=False)
    assert workload.done["put"] > 20, workload.done
    assert workload.done["refused"] > 5, workload.done
    assert not workload.done["failed"]


@pytest.mark.seeds(6, full=20, nightly=200)
def test_lost_answers_and_dead_brokers_leave_whole_versions_without_holes(seed: int) -> None:
    workload = simulated(seed, faults=True)
    assert workload.done["put"] > 20, workload.done
