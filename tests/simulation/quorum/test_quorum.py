"""No acknowledged entry is lost on bookies, whatever dies, stands still, is parted or loses its disk."""

from __future__ import annotations

import pytest

from tests.simulation.quorum.cluster import SHAPES
from tests.simulation.quorum.ledger_workload import LedgerWorkload
from tests.simulation.quorum.running import Outcome, run_cluster


def run_ledgers(seed: int) -> Outcome:
    """One run of owners over ledgers."""
    return run_cluster(seed, lambda cluster: LedgerWorkload(cluster).run())


@pytest.mark.seeds(24, full=1300)
def test_every_promise_of_ledgers_on_bookies_holds(seed: int) -> None:
    run_ledgers(seed)


def test_the_same_seed_gives_the_same_trace_hash() -> None:
    first = [run_ledgers(seed).trace for seed in range(4)]
    assert first == [run_ledgers(seed).trace for seed in range(4)]
    assert len(set(first)) == 4


def test_the_runs_are_worth_their_time() -> None:
    """Over a few seeds every shape of ledger is written, read, and recovered under trouble."""
    outcomes = [run_ledgers(seed) for seed in range(len(SHAPES))]
    assert sum(outcome.ledgers for outcome in outcomes) > 5 * len(SHAPES)
    assert all(outcome.confirmations for outcome in outcomes)
    assert all(outcome.reads for outcome in outcomes)
