from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from magnetar.broker.subscriptions.entries import due_entries
from magnetar.broker.subscriptions.entries.due_entries import DueEntries, read_due
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult


def drained(due: DueEntries, lot: int = 4) -> list[tuple[int, int]]:
    taken = []
    while due:
        entries = due.next(lot)
        taken += entries
        due.drop(entries)
    return taken


def test_entries_come_in_the_order_they_were_added() -> None:
    due = DueEntries()
    due.add([(5, 9), (5, 1), (4, 7)])
    assert due.next(2) == due.next(2) == [(5, 9), (5, 1)]
    due.add([(3, 0)])
    assert drained(due) == [(5, 9), (5, 1), (4, 7), (3, 0)]
    assert not due


def test_entries_beyond_the_limit_follow_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_entries, "IN_ORDER_MAX", 3)
    due = DueEntries()
    due.add([(1, entry_id) for entry_id in (8, 7, 6, 5, 4)])
    due.drop(due.next(2))
    due.add([(1, 9), (1, 3)])
    assert drained(due) == [(1, 6), (1, 3), (1, 4), (1, 5), (1, 9)]
    due.add([(1, 2)])
    assert drained(due) == [(1, 2)], "in order again"


class Ledger:
    """Entries of 10 bytes in one ledger; some are gone, some damaged."""

    def __init__(self, count: int, unreadable: set[int] | None = None, first: int = 0) -> None:
        self.count = count
        self.first = first
        self.unreadable = unreadable or set()
        self.reads: list[tuple[int, int]] = []

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        self.reads.append((start.entry_id, entries_max))
        first = max(start.entry_id, self.first)
        end = min(first + entries_max, self.count, first + max(1, bytes_max // 10))
        good = [each for each in range(first, end) if each not in self.unreadable]
        bad = [Position(1, each) for each in range(first, end) if each in self.unreadable]
        runs = [Run([b"%010d" % each], ledger_id=1, first_entry_id=each) for each in good]
        return ReadResult(runs, Position(1, end), bad)


def read(ledger: Ledger, *ids: int, bytes_max: int = 1_000) -> tuple[list[int], int, list[Position]]:
    found = asyncio.run(read_due(cast(Any, ledger), [(1, each) for each in ids], bytes_max))
    return [run.first_entry_id for run in found.runs], found.examined, found.unreadable


def test_entries_are_read_in_the_order_asked_for_and_neighbors_at_once() -> None:
    ledger = Ledger(100)
    assert read(ledger, 50, 12, 10, 90, 11, 54) == ([50, 12, 10, 90, 11, 54], 6, [])
    assert ledger.reads == [(50, 5), (12, 1), (10, 3), (90, 1)]


def test_missing_or_damaged_entries_are_skipped() -> None:
    ledger = Ledger(100, unreadable={21}, first=10)
    assert read(ledger, 5, 20, 21, 22) == ([20, 22], 4, [Position(1, 21)])


def test_no_more_is_read_than_there_is_room_for_but_one_entry_is() -> None:
    ledger = Ledger(100)
    assert read(ledger, 10, 30, 50, 70, bytes_max=25) == ([10, 30, 50], 3, [])
    assert read(ledger, 10, 11, 12, 13, bytes_max=20) == ([10, 11], 2, [])
    assert read(ledger, 10, 30, bytes_max=1) == ([10], 1, [])
