"""Damaged bytes are never served as data, never hide what follows, and never make a ledger shorter."""

from __future__ import annotations

import pytest

from tests.simulation.corruption import flip_and_check, plant_stale_blocks, remains_of
from tests.simulation.ledger_workload import LedgerWorkload

FLIPS = 50


@pytest.mark.parametrize("clean_end", [True, False], ids=["sealed", "open"])
@pytest.mark.seeds(1, full=2, nightly=6)
def test_a_flipped_bit_costs_at_most_the_entries_of_its_record(seed: int, clean_end: bool) -> None:
    remains = remains_of(LedgerWorkload(seed, clean_end=clean_end), seed)
    for flip in range(FLIPS):
        flip_and_check(remains, seed * FLIPS + flip)


@pytest.mark.seeds(5)
def test_blocks_of_another_life_of_a_file_are_never_taken_for_data(seed: int) -> None:
    plant_stale_blocks(remains_of(LedgerWorkload(seed, clean_end=False), seed), seed)
