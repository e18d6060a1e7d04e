"""How much of a segment a read fetches: what belongs to others is not worth reading ahead."""

from __future__ import annotations

import pytest
from magnetar.ledger.segment_log.index import LedgerIndex
from magnetar.ledger.segment_log.reader import READ_BYTES_MAX, READ_BYTES_MIN, READ_STRIDE_MAX, bytes_ahead

MANY = 100_000_000


def index_of(offsets: list[int]) -> LedgerIndex:
    index = LedgerIndex()
    for entry_id, offset in enumerate(offsets):
        index.add_run(entry_id, 1, offset, 1_024, entry_id - 1)
    return index


def test_records_that_lie_close_together_are_read_ahead_up_to_the_bound() -> None:
    index = index_of(list(range(4_096, 4_096 + 2_000 * 1_200, 1_200 // 16 * 16)))
    assert bytes_ahead(index, 0, MANY) == READ_BYTES_MAX
    assert bytes_ahead(index, 0, 100_000) == pytest.approx(100_000, abs=100)


def test_a_ledger_among_a_thousand_others_reads_one_record_at_a_time() -> None:
    index = index_of([4_096 + turn * 1_000 * 1_200 for turn in range(100)])
    assert bytes_ahead(index, 0, MANY) == READ_BYTES_MIN


def test_reading_ahead_ends_where_the_ledger_s_records_part() -> None:
    near = [4_096, 8_192, 12_288]
    far = near[-1] + READ_STRIDE_MAX + 16
    assert bytes_ahead(index_of([*near, far]), 0, MANY) == near[-1] - near[0] + READ_BYTES_MIN


def test_a_copy_that_lies_before_its_predecessor_is_not_read_ahead() -> None:
    index = index_of([1 << 20, 4_096, 8_192])
    assert bytes_ahead(index, 0, MANY) == READ_BYTES_MIN


def test_the_last_record_is_read_alone() -> None:
    index = index_of([4_096, 8_192])
    assert bytes_ahead(index, 1, MANY) == READ_BYTES_MIN
