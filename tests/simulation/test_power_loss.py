"""No acknowledged entry is lost when the power goes, whenever it goes."""

from __future__ import annotations

import pytest

from tests.simulation.ledger_workload import LedgerWorkload
from tests.simulation.power_loss import cut_everywhere


@pytest.mark.seeds(4)
def test_every_promise_holds_when_the_power_goes_at_any_write_sync_or_commit(seed: int) -> None:
    report = cut_everywhere(LedgerWorkload(seed), seed)
    assert report.cuts > 100
    assert report.checks >= report.cuts
