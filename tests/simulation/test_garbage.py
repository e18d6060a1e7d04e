"""Deleted ledgers give their bytes back, and nothing else does, whenever the power goes."""

from __future__ import annotations

import pytest

from tests.simulation.garbage_workload import GarbageWorkload
from tests.simulation.power_loss import cut_everywhere

SEEDS = 4


@pytest.mark.seeds(SEEDS, full=200)
def test_every_promise_holds_when_the_power_goes_during_garbage_collection(seed: int) -> None:
    workload = GarbageWorkload(seed)
    # Every third moment of the first seeds, a sample of the others.
    report = cut_everywhere(workload, seed, every=3 if seed < SEEDS else 25)
    assert report.checks > 20
    assert any(promises.deleted for promises in workload.ledgers.values())
