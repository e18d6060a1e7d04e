from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.subscriptions.replay import ReplaySet

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


def test_discarding_what_is_not_there_changes_nothing() -> None:
    replay = ReplaySet()
    replay.add(1, 5)
    replay.discard_range(2, 0, 9)
    replay.discard_range(1, 6, 9)
    assert replay.first_range(10) == (1, 5, 5)
