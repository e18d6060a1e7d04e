from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.subscriptions.entries.replay_set import ReplaySet

POSITIONS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=60)


@given(POSITIONS, st.integers(1, 7))
def test_everything_comes_out_once_oldest_first_in_bounded_ranges(
    positions: list[tuple[int, int]], entries_max: int
) -> None:
    replay = ReplaySet()
    for ledger_id, entry_id in positions:
        replay.add(ledger_id, entry_id)
    assert len(replay) == len(set(positions))
    out = []
    while replay:
        ledger_id, first, last = replay.first_range(entries_max)
        assert last - first < entries_max
        out += [(ledger_id, entry_id) for entry_id in range(first, last + 1)]
        replay.discard_range(ledger_id, first, last)
    assert out == sorted(set(positions))


@given(POSITIONS, st.integers(1, 7), st.integers(1, 20))
def test_everything_comes_out_once_by_windows_too(
    positions: list[tuple[int, int]], entries_max: int, span_max: int
) -> None:
    replay = ReplaySet()
    for ledger_id, entry_id in positions:
        replay.add(ledger_id, entry_id)
    out = []
    while replay:
        ledger_id, first, last = replay.first_window(entries_max, span_max)
        assert last - first < span_max
        stretches = list(replay.ranges(ledger_id, first, last))
        assert stretches[0][0] == first
        assert stretches[-1][1] == last
        taken = [(ledger_id, n) for start, end in stretches for n in range(start, end + 1)]
        assert len(taken) <= entries_max
        out += taken
        replay.discard_range(ledger_id, first, last)
    assert out == sorted(set(positions))


def test_entries_far_from_each_other_are_not_read_together() -> None:
    replay = ReplaySet()
    for entry_id in (1, 3, 40, 73):
        replay.add(1, entry_id)
    assert replay.first_window(9, 1_000) == (1, 1, 3)
    assert list(replay.ranges(1, 2, 50)) == [(3, 3), (40, 40)]
    assert list(replay.ranges(2, 2, 50)) == []


def test_discarding_what_is_not_there_changes_nothing() -> None:
    replay = ReplaySet()
    replay.add(1, 5)
    replay.discard_range(2, 0, 9)
    replay.discard_range(1, 6, 9)
    assert replay.first_range(10) == (1, 5, 5)
