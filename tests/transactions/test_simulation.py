"""Transactions keep their promises whatever dies, stands still, moves or is parted."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.quorum.cluster import Cluster, Shape
from tests.simulation.quorum.running import Outcome, run_cluster
from tests.transactions.checker import summary
from tests.transactions.workload import TransactionWorkload

LOG = Shape(1, 1, 1, 0)
"""One log that never fails, beside the brokers."""
BOOKIES = Shape(3, 3, 2, 3)
FEW = 50
"""Seeds within which planted mistakes are found (`tests/mutations/transaction_mistakes.py`)."""
WORTH = 40
"""Seeds of which all together have to show something of everything."""


def run_transactions(seed: int, shape: Shape) -> tuple[Outcome, Counter[str]]:
    """One run; returns what came about, and what the history shows."""
    workloads: list[TransactionWorkload] = []

    async def main(cluster: Cluster) -> None:
        workloads.append(TransactionWorkload(cluster))
        await workloads[0].run()

    outcome = run_cluster(seed, main, shape=shape)
    return outcome, summary(workloads[0].history)


@pytest.mark.parametrize("seed", range(FEW))
def test_every_promise_of_transactions_holds_in_a_few_runs(seed: int) -> None:
    run_transactions(seed, LOG)


@pytest.mark.full
@pytest.mark.seeds(400, nightly=2_000)
def test_every_promise_of_transactions_holds_over_one_log(seed: int) -> None:
    run_transactions(seed, LOG)


@pytest.mark.seeds(5, full=50, nightly=400)
def test_every_promise_of_transactions_holds_over_bookies(seed: int) -> None:
    run_transactions(seed, BOOKIES)


@pytest.mark.parametrize("seed", [8880])
def test_a_topic_that_no_broker_could_create_is_empty_in_the_end(seed: int) -> None:
    run_transactions(seed, LOG)


@pytest.mark.full
def test_the_same_seed_gives_the_same_trace_hash() -> None:
    first = [run_transactions(seed, LOG)[0].trace for seed in range(4)]
    assert first == [run_transactions(seed, LOG)[0].trace for seed in range(4)]
    assert len(set(first)) == 4


@pytest.mark.full
def test_the_runs_are_worth_their_time() -> None:
    shown: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    for seed in range(WORTH):
        outcome, counts = run_transactions(seed, LOG)
        shown += counts
        happened += outcome.happened
    assert shown["committed"] > WORTH
    assert shown["aborted"] > WORTH / 2
    assert shown["calls without an answer"] > WORTH / 4
    assert shown["messages in transactions"] > 2 * WORTH
    kinds = ("kill", "pause", "move", "part", "jump", "doubt", "lose metadata")
    assert all(happened[f"{kind} of a broker"] > WORTH / 4 for kind in kinds), happened
