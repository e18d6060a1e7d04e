"""Deleted ledgers give their bytes back, and nothing else does, whenever the power goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.corruption import flip_and_check, remains_of
from tests.simulation.full_disk_workload import FullDiskWorkload
from tests.simulation.garbage_workload import GARBAGE, GarbageWorkload
from tests.simulation.power_loss import cut_everywhere


@pytest.mark.seeds(1, full=5, nightly=60)
def test_every_promise_holds_when_the_power_goes_during_garbage_collection(seed: int) -> None:
    workload = GarbageWorkload(seed)
    report = cut_everywhere(workload, seed, every=12 if seed < 4 else 40)
    assert report.checks > 5
    assert any(promises.deleted for promises in workload.ledgers.values())


@pytest.mark.full
@pytest.mark.seeds(1)
def test_every_promise_holds_at_every_single_moment_of_garbage_collection(seed: int) -> None:
    cut_everywhere(GarbageWorkload(seed), seed)


@pytest.mark.seeds(1, full=5, nightly=60)
def test_every_promise_holds_on_a_disk_that_fills_up(seed: int) -> None:
    workload = FullDiskWorkload(seed)
    report = cut_everywhere(workload, seed, every=12 if seed < 4 else 40)
    assert report.checks > 5
    assert workload.refused, "no append met a full disk"


@pytest.mark.full
@pytest.mark.seeds(2, full=3, nightly=6)
def test_a_flipped_bit_costs_at_most_its_record_through_compaction_too(seed: int) -> None:
    config = replace(GARBAGE, compaction_live_ratio=1.0, sort_after_s=0.1)
    remains = remains_of(GarbageWorkload(seed, config=config), seed)
    for flip in range(40):
        flip_and_check(remains, seed * 40 + flip)
