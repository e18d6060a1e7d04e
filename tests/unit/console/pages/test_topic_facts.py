"""Positions in a topic, by the ledgers that the admin API tells."""

from __future__ import annotations

import pytest
from magnetar.console.pages.topic_facts import Ledger, entries_from, ledgers_of, position_before_end

LEDGERS = [Ledger(1, 10, 100, True), Ledger(5, 0, 0, False), Ledger(9, 4, 40, False)]


@pytest.mark.parametrize(
    ("position", "entries"),
    [
        ((0, 0), 14),
        ((1, 0), 14),
        ((1, 9), 5),
        ((1, 99), 4),
        ((5, 0), 4),
        ((9, 3), 1),
        ((9, 4), 0),
        ((12, 0), 0),
    ],
)
def test_entries_from_a_position_to_the_end(position: tuple[int, int], entries: int) -> None:
    assert entries_from(LEDGERS, *position) == entries


@pytest.mark.parametrize(
    ("entries", "position"), [(1, (9, 3)), (4, (9, 0)), (5, (1, 9)), (14, (1, 0)), (1000, (1, 0))]
)
def test_the_position_with_so_many_entries_to_the_end(entries: int, position: tuple[int, int]) -> None:
    assert position_before_end(LEDGERS, entries) == position
    assert entries_from(LEDGERS, *position) == min(entries, 14)


def test_an_empty_topic_has_no_position() -> None:
    assert position_before_end([], 5) is None
    assert position_before_end([Ledger(1, 0, 0, False)], 5) is None


def test_the_open_ledger_has_its_figures_beside_the_list() -> None:
    rows = [
        {"ledgerId": 1, "entries": 3, "size": 30, "offloaded": True},
        {"ledgerId": 2, "entries": 0, "size": 0},
    ]
    found = ledgers_of({"ledgers": rows, "currentLedgerEntries": 5, "currentLedgerSize": 50})
    assert found == [Ledger(1, 3, 30, True), Ledger(2, 5, 50, False)]
    closed = ledgers_of({"ledgers": rows[:1], "currentLedgerEntries": 0, "currentLedgerSize": 0})
    assert closed == [Ledger(1, 3, 30, True)]
