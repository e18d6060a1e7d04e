"""No acknowledged entry is lost on bookies, whatever dies, stands still, is parted or loses its disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.quorum.cluster import SHAPES, Shape
from tests.simulation.quorum.directed import (
    THREE,
    EmptiedDisk,
    FilledUp,
    ForgottenFence,
    ForgottenFenceOfAnEmptiedDisk,
    Garbage,
    KillThenPowerLoss,
    LateAppend,
    LostFiles,
    Returned,
    ReusedAddress,
    RottenTail,
    Staged,
    WritesGoOn,
    staged,
)
from tests.simulation.quorum.ledger_workload import Duel, LedgerWorkload, ReplicatedDuel
from tests.simulation.quorum.running import Outcome, run_cluster


def run_ledgers(seed: int) -> Outcome:
    """One run of owners over ledgers."""
    return run_cluster(seed, lambda cluster: LedgerWorkload(cluster).run())


def run_duel(seed: int) -> Outcome:
    """One run of short fights over ledgers."""
    return run_cluster(seed, lambda cluster: Duel(cluster).run())


@pytest.mark.seeds(10, full=67, nightly=400)
def test_every_promise_holds_in_short_fights(seed: int) -> None:
    run_duel(seed)


def run_staged(kind: type[Staged]) -> Callable[[int], Outcome]:
    """Runs of staged trouble on three bookies."""
    return lambda seed: run_cluster(seed, lambda cluster: staged(cluster, kind).run(), shape=THREE)


@pytest.mark.seeds(2, full=7, nightly=40)
def test_after_healing_everything_is_replicated_again(seed: int) -> None:
    run_cluster(seed, lambda cluster: ReplicatedDuel(cluster).run())


@pytest.mark.parametrize("seed", [1385])
def test_a_power_loss_of_a_ledger_with_an_ack_quorum_of_one_leaves_no_doubt_without_end(seed: int) -> None:
    run_cluster(seed, lambda cluster: ReplicatedDuel(cluster).run())


@pytest.mark.parametrize(
    "kind", [LateAppend, EmptiedDisk, RottenTail, KillThenPowerLoss, Garbage, ReusedAddress]
)
@pytest.mark.seeds(1, full=4, nightly=20)
def test_every_promise_holds_under_staged_trouble(seed: int, kind: type[Staged]) -> None:
    run_staged(kind)(seed)


@pytest.mark.parametrize("kind", [Returned, LostFiles, ForgottenFence, ForgottenFenceOfAnEmptiedDisk])
@pytest.mark.seeds(1, full=4, nightly=10)
def test_no_promise_is_forgotten_with_a_disk(seed: int, kind: type[Staged]) -> None:
    run_staged(kind)(seed)


@pytest.mark.full
@pytest.mark.seeds(1, full=3, nightly=4)
def test_a_bookie_that_was_away_is_filled_up_beside_a_writer_that_goes_on(seed: int) -> None:
    run_staged(FilledUp)(seed)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.unreachable_max])
@pytest.mark.seeds(1, full=5, nightly=12)
def test_writes_go_on_without_as_many_bookies_as_the_quorums_spare(seed: int, shape: Shape) -> None:
    run_cluster(seed, lambda cluster: staged(cluster, WritesGoOn).run(), shape=shape)


@pytest.mark.seeds(4, full=17, nightly=100)
def test_every_promise_of_ledgers_on_bookies_holds(seed: int) -> None:
    run_ledgers(seed)


@pytest.mark.full
def test_the_same_seed_gives_the_same_trace_hash() -> None:
    first = [run_ledgers(seed).trace for seed in range(4)]
    assert first == [run_ledgers(seed).trace for seed in range(4)]
    assert len(set(first)) == 4


@pytest.mark.full
def test_the_runs_are_worth_their_time() -> None:
    """Over a few seeds every shape of ledger is written, read, and recovered under trouble."""
    outcomes = [run_ledgers(seed) for seed in range(len(SHAPES))]
    assert sum(outcome.ledgers for outcome in outcomes) > 5 * len(SHAPES)
    assert all(outcome.confirmations for outcome in outcomes)
    assert all(outcome.reads for outcome in outcomes)
