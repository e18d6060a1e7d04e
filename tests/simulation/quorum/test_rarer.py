"""Trouble of several parts: each kind is staged, and comes about by chance in the runs over ledgers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.quorum.happenings import (
    COPIES_BESIDE,
    HELD_BACK,
    LATE_COMMITS,
    MOVED_LATE,
    RACED_IDS,
    RARER_KINDS,
    REFUSED_AT_A_FENCE,
    REPAIRS_COMPACTED,
)
from tests.simulation.quorum.rarer import SUITES, run_all_at_once

STAGED = {
    "LateCommits": LATE_COMMITS,
    "HeldBack": HELD_BACK,
    "CopiesBeside": COPIES_BESIDE,
    "MovedLate": MOVED_LATE,
    "RacedIds": RACED_IDS,
    "RefusedAtAFence": REFUSED_AT_A_FENCE,
    "RepairsCompacted": REPAIRS_COMPACTED,
}


COUNTED = {"MovedLate": range(1, 3), "RefusedAtAFence": range(8)}
"""Seeds over which staged trouble has to come about, if other than the first two."""


@pytest.mark.parametrize("kind", STAGED)
@pytest.mark.seeds(1, full=3, nightly=5)
def test_every_promise_holds_under_rarer_trouble(seed: int, kind: str) -> None:
    SUITES[kind](seed)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "what"), STAGED.items())
def test_staged_trouble_comes_about(kind: str, what: str) -> None:
    happened = sum((SUITES[kind](seed).happened for seed in COUNTED.get(kind, range(2))), Counter())
    assert happened[what], f"{kind} ran without {what}"


@pytest.mark.seeds(1, full=4, nightly=30)
def test_every_promise_holds_under_all_rarer_trouble_at_once(seed: int) -> None:
    run_all_at_once(seed)


@pytest.mark.full
def test_all_rarer_trouble_comes_about_by_chance() -> None:
    """But for moves that outlast a grace: these runs are too short for many."""
    happened = sum((run_all_at_once(seed).happened for seed in range(7)), Counter())
    missing = set(RARER_KINDS) - {MOVED_LATE} - set(happened)
    assert not missing, f"never happened: {missing}"
