"""How ledgers are cut into parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.offload.plan import PARTS_MAX, plan_parts


@given(st.integers(-1, 5_000), st.integers(0, 1 << 40), st.integers(1, 1 << 30))
def test_parts_hold_every_entry_once_in_order(last: int, byte_length: int, part_bytes: int) -> None:
    parts = plan_parts(last, byte_length, part_bytes)
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


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="part_bytes"):
        plan_parts(9, 1_000, 0)
