"""Whenever the power goes, transactions of a topic are what was promised: open, committed or aborted."""

from __future__ import annotations

import pytest

from tests.simulation.power_loss import cut_everywhere
from tests.simulation.transaction_workload import TransactionWorkload


@pytest.mark.seeds(2, full=6, nightly=60)
def test_transactions_survive_a_power_loss_at_any_write_sync_or_commit(seed: int) -> None:
    workload = TransactionWorkload(seed)
    report = cut_everywhere(workload, seed, every=3)
    assert report.checks > 20
    # In a few seeds the last run ends no transaction.
    assert workload.promises.ended or workload.promises.entries
