"""Bitmaps as ranges, against plain sets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.ledger.managed_ledger.bitmaps import bitmap_bytes, count_ranges, first_hole, ranges_in
from pyroaring import BitMap

NUMBERS = st.sets(st.integers(0, 300) | st.integers(65_500, 65_600) | st.integers(2**31 - 40, 2**31))


def ranges_of(numbers: set[int]) -> list[tuple[int, int]]:
    """By looking at each number."""
    grouped = itertools.groupby(enumerate(sorted(numbers)), key=lambda at: at[1] - at[0])
    runs = [[number for _, number in run] for _, run in grouped]
    return [(run[0], run[-1]) for run in runs]


@given(NUMBERS)
def test_ranges_are_those_of_the_set(numbers: set[int]) -> None:
    bitmap = BitMap(numbers)
    assert list(ranges_in(bitmap)) == ranges_of(numbers)
    assert count_ranges(bitmap) == len(ranges_of(numbers))


@given(NUMBERS, st.integers(0, 400))
def test_the_first_hole_is_the_first_number_that_is_missing(numbers: set[int], start: int) -> None:
    missing = next(number for number in itertools.count(start) if number not in numbers)
    assert first_hole(BitMap(numbers), start) == missing


@pytest.mark.parametrize("entries", [1_000, 100_000])
def test_every_second_entry_is_counted_in_the_memory_of_a_bitmap(entries: int) -> None:
    bitmap = BitMap(range(0, 2 * entries, 2))
    assert count_ranges(bitmap) == entries
    assert entries // 8 < bitmap_bytes(bitmap) <= 2 * entries + 8192
