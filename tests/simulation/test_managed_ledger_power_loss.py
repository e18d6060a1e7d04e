"""No confirmed entry, subscription or acknowledgement is lost when the power goes, whenever it goes."""

from __future__ import annotations

import random

import pytest

from tests.simulation.managed_ledger_workload import ManagedLedgerWorkload
from tests.simulation.power_loss import cut_everywhere


def sampled(seed: int) -> int:
    """The first seed is cut at every moment, the others at one in so many."""
    return 10 if seed else 1


@pytest.mark.seeds(1, full=4, nightly=15)
def test_entries_and_cursors_survive_a_power_loss_at_any_write_sync_or_commit(seed: int) -> None:
    workload = ManagedLedgerWorkload(seed)
    report = cut_everywhere(workload, seed, every=sampled(seed))
    assert report.cuts > 150
    assert workload.losses, "there were two owners"


def workload_with_sync_errors(seed: int) -> ManagedLedgerWorkload:
    """A workload in which some syncs of its disk answer EIO."""
    rng = random.Random(seed)
    starts = [rng.randrange(10, 250) for _ in range(4)]
    errors = frozenset(number for start in starts for number in range(start, start + 3))
    return ManagedLedgerWorkload(seed, sync_error_at=errors)


@pytest.mark.full
@pytest.mark.seeds(1, full=4, nightly=15)
def test_entries_and_cursors_survive_failing_syncs_and_a_power_loss(seed: int) -> None:
    report = cut_everywhere(workload_with_sync_errors(seed), seed, every=sampled(seed))
    assert report.cuts > 150
