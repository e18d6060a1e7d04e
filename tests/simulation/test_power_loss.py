"""No acknowledged entry is lost when the power goes, whenever it goes."""

from __future__ import annotations

import random

import pytest

from tests.simulation.ledger_workload import LedgerWorkload
from tests.simulation.power_loss import cut_everywhere

SEEDS = 4
"""So many seeds are cut at every moment, the others at a sample of them."""


@pytest.mark.seeds(1, full=12, nightly=120)
def test_every_promise_holds_when_the_power_goes_at_any_write_sync_or_commit(seed: int) -> None:
    every = 1 if seed < SEEDS else 8
    report = cut_everywhere(LedgerWorkload(seed), seed, every=every)
    assert report.cuts > 100
    assert report.checks >= report.cuts // every


def workload_with_sync_errors(seed: int) -> LedgerWorkload:
    """A workload in which some syncs of its disk answer EIO."""
    rng = random.Random(seed)
    starts = [rng.randrange(10, 250) for _ in range(4)]
    errors = frozenset(number for start in starts for number in range(start, start + 3))
    return LedgerWorkload(seed, sync_error_at=errors)


@pytest.mark.seeds(1, full=7, nightly=70)
def test_every_promise_holds_when_syncs_fail_and_the_power_goes(seed: int) -> None:
    workload = workload_with_sync_errors(seed)
    cut_everywhere(workload, seed, every=1 if seed < SEEDS else 8)
    if seed < SEEDS:
        assert any(promises.failed for promises in workload.ledgers.values()), "no append met a failed sync"


def test_the_same_seed_gives_the_same_trace_hash() -> None:
    def trace(seed: int) -> str:
        return cut_everywhere(LedgerWorkload(seed), seed, outcomes=0).trace

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)
