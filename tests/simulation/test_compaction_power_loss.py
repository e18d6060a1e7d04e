"""A view of a compacted topic is complete and never older than before, whenever the power goes."""

from __future__ import annotations

import pytest
from magnetar.ledger.compacted import merge_plan
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.managed_ledger import compaction_run

from tests.simulation.compaction_workload import CompactionWorkload
from tests.simulation.power_loss import cut_everywhere


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pages a segment, and dead sets in ledgers of their own, with little data."""
    monkeypatch.setattr(pages, "PAGE_BYTES_MAX", 1_000)
    monkeypatch.setattr(compaction_run, "DEAD_SET_BYTES_MAX", 18)
    monkeypatch.setattr(compaction_run, "KEPT_BYTES_MAX", 3_000)
    monkeypatch.setattr(compaction_run, "READ_ENTRIES", 10)
    monkeypatch.setattr(merge_plan, "SMALL_BYTES", 2_000)


@pytest.mark.seeds(1, full=3, nightly=30)
def test_a_view_survives_a_power_loss_at_any_write_sync_or_commit(seed: int) -> None:
    workload = CompactionWorkload(seed)
    report = cut_everywhere(workload, seed, every=10 if seed else 5)
    assert report.cuts > 50
    assert workload.runs > workload.failures


@pytest.mark.seeds(1, full=3, nightly=30)
def test_a_view_survives_lost_answers_and_a_power_loss(seed: int) -> None:
    workload = CompactionWorkload(seed, unknown_outcomes=True)
    report = cut_everywhere(workload, seed, every=8)
    assert report.cuts > 50
    assert workload.runs > workload.failures
