"""The per-ledger index against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.ledger.segment_log.index import NO_RUN, LedgerIndex


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=40), st.integers(0, 2**40))
def test_every_entry_of_every_run_is_found_whatever_the_gaps(steps: list[tuple[int, int]], base: int) -> None:
    index = LedgerIndex()
    where: dict[int, int] = {}
    entry = base
    for number, (gap, count) in enumerate(steps):
        entry += gap
        index.add_run(entry, count, 16 * number, 10 * count, entry - 1)
        where.update((entry + i, 16 * number) for i in range(count))
        entry += count
    for wanted, offset in where.items():
        assert index.offset(index.find(wanted)) == offset
    assert index.find(base - 1) == NO_RUN
    assert index.find(entry) == NO_RUN
    assert index.last_entry_id == max(where, default=-1)
    assert index.byte_length == 10 * len(where)


@given(st.permutations(range(12)))
def test_runs_may_come_in_any_order_as_after_a_rewrite(order: list[int]) -> None:
    index = LedgerIndex()
    for run in order:
        index.add_run(100 + 3 * run, 3, 16 * run, 1, -1)
    for run in range(12):
        for entry in range(3):
            place = index.find(100 + 3 * run + entry)
            assert (index.first_entry_id(place), index.offset(place)) == (100 + 3 * run, 16 * run)


def test_a_copy_of_a_run_replaces_it_and_counts_once() -> None:
    index = LedgerIndex()
    index.add_run(0, 5, 16, 50, -1)
    index.add_run(0, 5, 320, 50, -1)
    assert (len(index), index.offset(index.find(4)), index.byte_length) == (1, 320, 50)


def test_an_entry_costs_eight_bytes_a_run_and_nothing_more() -> None:
    index = LedgerIndex()
    for run in range(1000):
        index.add_run(run * 100, 100, run * 16, 1, -1)
    assert index.firsts.itemsize * len(index.firsts) + index.offsets.itemsize * len(index.offsets) == 8000


def test_an_index_survives_its_footer_line() -> None:
    index = LedgerIndex()
    index.add_run(7, 2, 160, 20, 6)
    index.fenced = True
    again = LedgerIndex.from_footer(index.summary(1, 2), index.firsts, index.offsets)
    assert again.summary(1, 2) == index.summary(1, 2)
    assert again.find(8) == index.find(8)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=40), st.booleans())
def test_whatever_overlaps_every_run_with_an_entry_is_a_candidate(
    runs: list[tuple[int, int]], sealed: bool
) -> None:
    index = LedgerIndex()
    for number, (first, count) in enumerate(runs):
        index.add_run(first, count, 16 * number, 1, -1)
    if sealed:
        index = LedgerIndex.from_footer(index.summary(1, 2), index.firsts, index.offsets)
    for entry in range(75):
        offsets = {index.offset(place) // 16 for place in index.candidates(entry)}
        holders = [number for number, (first, count) in enumerate(runs) if first <= entry < first + count]
        # A run gives way to a later one that begins where it does and is no shorter.
        replaced = {
            number
            for number in holders
            if any(f == runs[number][0] and c >= runs[number][1] for f, c in runs[number + 1 :])
        }
        assert set(holders) - replaced <= offsets
        later = [first for first, _ in runs if first > entry]
        assert index.next_after(entry) == min(later, default=None)
