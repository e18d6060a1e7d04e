"""The strip of a subscription, against counting entry by entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.console.pages.acked_ranges import CELLS, strip_of
from magnetar.console.pages.topic_facts import Ledger

LEDGERS = [Ledger(3, 100, 0, True), Ledger(5, 0, 0, False), Ledger(9, 60, 0, False)]


def test_ranges_are_drawn_above_the_mark_delete_position() -> None:
    strip = strip_of(LEDGERS, "3:89", "[(3:94..3:99],(9:-1..9:4],(9:9..9:10]]")
    assert (strip.entries, strip.acked, strip.ranges) == (70, 11, 3)
    assert len(strip.cells) == 70
    levels = [each.level for each in strip.cells]
    assert [number for number, level in enumerate(levels) if level == "all"] == [*range(5, 15), 20]
    assert (strip.cells[0].first, strip.cells[10].first) == ("3:90", "9:0")


def test_many_entries_share_a_cell() -> None:
    strip = strip_of([Ledger(1, 8_000, 0, False)], "1:-1", "[(1:49..1:149]]")
    assert len(strip.cells) == CELLS
    assert [each.level for each in strip.cells[:3]] == ["some", "some", "none"]
    assert sum(each.entries for each in strip.cells) == 8_000


def test_without_a_position_or_a_backlog_there_is_no_strip() -> None:
    for mark in ("", "unknown", "9:59", "12:0", "1" * 30 + ":1"):
        assert strip_of(LEDGERS, mark, "[(3:94..3:99]]").cells == []
    assert strip_of([], "3:4", "nonsense").cells == []
    assert strip_of(LEDGERS, "1:7", "").entries == 160, "its ledger is trimmed"


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(-1, 60),
    st.sets(st.integers(0, 199), max_size=60),
)
def test_every_entry_is_in_one_cell_with_its_state(sizes: list[int], mark: int, acked: set[int]) -> None:
    ledgers = [Ledger(number, size, 0, False) for number, size in enumerate(sizes)]
    positions = [(each.ledger_id, entry) for each in ledgers for entry in range(each.entries)]
    begin = min(max(mark + 1, 0), sizes[0])
    text = ",".join(
        f"({ledger}:{entry - 1}..{ledger}:{entry}]"
        for number, (ledger, entry) in enumerate(positions)
        if number in acked
    )
    strip = strip_of(ledgers, f"0:{mark}", f"[{text}]")
    above = range(begin, len(positions))
    assert strip.entries == len(above)
    assert strip.acked == len(acked.intersection(above))
    at = begin
    for cell in strip.cells:
        assert cell.acked == len(acked.intersection(range(at, at + cell.entries)))
        ledger, entry = positions[at]
        assert cell.first == f"{ledger}:{entry}"
        at += cell.entries
    assert at == len(positions) or not strip.cells
