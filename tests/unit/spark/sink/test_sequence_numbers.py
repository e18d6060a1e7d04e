"""Sequence ids of rows: the same each time, and a check that finds other rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.sink.sequence_numbers import (
    BATCHES,
    NONE_YET,
    ONE_BATCH,
    BatchPassed,
    Numbering,
    Resumption,
    RowNumbers,
    RowsDiffer,
    TooManyRows,
)

TINY = Numbering(60, 2, 1)


def ids_of(rows: list[bytes], batch: int = 3, numbering: Numbering = BATCHES) -> list[int]:
    numbers = RowNumbers(numbering, batch)
    return [numbers.next(row) for row in rows]


def resume(ids: list[int], last: int, batch: int = 3, step: int = 2) -> list[int]:
    """The ids that would be published, given a few at a time."""
    resumption = Resumption(BATCHES, batch, last, "topic: producer 'p'")
    published: list[int] = []
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        published += part[resumption.stored(part) :]
    resumption.finish()
    return published


@given(st.lists(st.binary(max_size=8), min_size=1), st.integers(0, 2**27 - 2))
def test_ids_of_a_batch_ascend_and_lie_before_those_of_the_next(rows: list[bytes], batch: int) -> None:
    ids = ids_of(rows, batch)
    assert ids == sorted(set(ids)), "ids ascend"
    assert ids == ids_of(rows, batch), "the same rows have the same ids"
    assert ids[-1] < BATCHES.first(batch + 1) <= 2**63 - 1
    assert [BATCHES.row_of(each) for each in ids] == list(range(len(rows)))
    assert {BATCHES.batch_of(each) for each in ids} == {batch}


@given(st.lists(st.binary(max_size=8), min_size=1), st.data())
def test_next_attempt_publishes_exactly_the_missing_rows(rows: list[bytes], data: st.DataObject) -> None:
    ids = ids_of(rows)
    stored = data.draw(st.integers(0, len(ids)))
    step = data.draw(st.integers(1, 5))
    last = ids[stored - 1] if stored else NONE_YET
    assert resume(ids, last, step=step) == ids[stored:]


def test_a_name_that_has_published_earlier_batches_publishes_all_of_the_next() -> None:
    last = ids_of([b"a", b"b"], batch=2)[-1]
    ids = ids_of([b"c", b"d"], batch=3)
    assert resume(ids, last, batch=3) == ids


def test_rows_in_another_order_are_refused_before_one_of_them_is_published() -> None:
    rows = [b"row %d" % number for number in range(40)]
    last = ids_of(rows)[20]
    changed = [rows[1], rows[0], *rows[2:]]
    resumption = Resumption(BATCHES, 3, last, "my-topic: producer 'spark-q-1'")
    ids = ids_of(changed)
    with pytest.raises(RowsDiffer, match=r"my-topic: producer 'spark-q-1' was interrupted after row 20"):
        assert resumption.stored(ids) == len(ids), "nothing may be published"


def test_fewer_rows_than_were_published_are_refused() -> None:
    rows = [b"a", b"b", b"c"]
    last = ids_of(rows)[-1]
    with pytest.raises(RowsDiffer):
        resume(ids_of(rows[:2]), last)


def test_target_topics_are_part_of_the_check() -> None:
    before, after = RowNumbers(BATCHES, 1), RowNumbers(BATCHES, 1)
    before.mix(b"topic 2")
    after.mix(b"topic 4")
    assert before.next(b"row") != after.next(b"row")


def test_a_query_whose_checkpoint_was_set_back_is_refused() -> None:
    last = ids_of([b"a"], batch=7)[-1]
    with pytest.raises(BatchPassed, match="has published batch 7, and is asked for batch 3"):
        Resumption(BATCHES, 3, last, "my-topic")


def test_a_write_alone_has_numbers_for_more_rows_than_a_micro_batch() -> None:
    ONE_BATCH.sequence_id(0, BATCHES.first(1), 5)
    with pytest.raises(TooManyRows, match="repartition"):
        BATCHES.sequence_id(0, 1 << BATCHES.row_bits, 5)
    with pytest.raises(TooManyRows, match=r"query\.id"):
        RowNumbers(BATCHES, 1 << BATCHES.batch_bits)
    assert TINY.sequence_id(1, 3, 0b1111) == 0b1111
