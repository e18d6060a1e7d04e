"""How ledgers are cut into parts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.offload.part_plan import (
    PARTS_MAX,
    SAMPLE_BYTES,
    SAMPLE_SHARE,
    entries_to_measure,
    plan_parts,
)


@given(
    st.integers(-1, 5_000),
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 30),
    st.randoms(use_true_random=False),
)
def test_parts_hold_every_entry_once_in_order(
    last: int, byte_length: int, part_bytes: int, rng: random.Random
) -> None:
    sizes = [rng.choice((0, 1, 100, 5 << 20)) for _ in entries_to_measure(last, byte_length, part_bytes)]
    for given_sizes in (sizes, ()):
        parts = plan_parts(last, byte_length, part_bytes, given_sizes)
        assert [each.number for each in parts] == list(range(len(parts)))
        entries = [entry for each in parts for entry in range(each.first_entry_id, each.last_entry_id + 1)]
        assert entries == list(range(last + 1))
        assert all(each.entries > 0 for each in parts)
        assert len(parts) <= PARTS_MAX
    if parts:
        assert max(each.entries for each in parts) - min(each.entries for each in parts) <= 1


def test_a_ledger_below_the_size_is_one_part() -> None:
    assert [(each.first_entry_id, each.last_entry_id) for each in plan_parts(9, 1_000, 1_000)] == [(0, 9)]
    assert len(plan_parts(9, 1_001, 1_000)) == 2
    assert entries_to_measure(9, 1_000, 1_000) == []


def small_then_large(number: int) -> int:
    return 100 if number < 95_000 else 100_000


def growing(number: int) -> int:
    return 100 + number // 10


def in_bursts(number: int) -> int:
    return 50_000 if number % 20_000 > 18_000 else 500


@pytest.mark.parametrize("size", [small_then_large, growing, in_bursts])
def test_parts_have_about_equal_bytes_where_entries_have_not(size: Callable[[int], int]) -> None:
    all_sizes = [size(number) for number in range(100_000)]
    byte_length = sum(all_sizes)
    part_bytes = byte_length // 8
    measured = entries_to_measure(99_999, byte_length, part_bytes)
    assert measured == sorted(set(measured))
    assert sum(map(size, measured)) <= max(SAMPLE_BYTES, byte_length // 8)
    parts = plan_parts(99_999, byte_length, part_bytes, [size(number) for number in measured])
    found = [sum(all_sizes[each.first_entry_id : each.last_entry_id + 1]) for each in parts]
    assert len(found) in (8, 9)
    assert max(found) < 1.35 * part_bytes


def test_an_entry_with_the_bytes_of_several_parts_is_one_part() -> None:
    sizes = [10, 10, 1_000, 10, 10]
    assert entries_to_measure(4, 1_040, 300) == [0, 1, 2, 3, 4]
    parts = plan_parts(4, 1_040, 300, sizes)
    assert [(each.first_entry_id, each.last_entry_id) for each in parts] == [(0, 2), (3, 4)]


def test_looking_at_large_entries_is_not_reading_half_of_the_ledger() -> None:
    measured = entries_to_measure(199, 200 * (5 << 20), 128 << 20)
    assert 8 <= len(measured) <= 200 // SAMPLE_SHARE + 1


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="part_bytes"):
        plan_parts(9, 1_000, 0)
