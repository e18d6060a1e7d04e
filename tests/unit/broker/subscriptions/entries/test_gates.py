"""Several gates of one entry source: each sees what those before it let pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap

from tests.unit.broker.subscriptions.fakes import FakeCursor, FakeLedger
from tests.unit.broker.subscriptions.source_reader import Reader, fresh


class PickyGate:
    """Lets entries pass by their id, and writes down which it was asked about."""

    def __init__(self, passes: Callable[[int], bool], kept: BitMap | None = None) -> None:
        self.passes = passes
        self.asked: list[int] = []
        self.cleared = 0
        self._kept = kept

    def hold(self, run: Run) -> list[Run]:
        ids = range(run.first_entry_id, run.last_entry_id + 1)
        self.asked += ids
        return [run.slice(each, each) for each in ids if self.passes(each)]

    def kept(self, ledger_id: int) -> BitMap | None:
        return self._kept

    def clear(self) -> None:
        self.cleared += 1


class HoleyCursor(FakeCursor):
    """Skips what gates keep, as the real cursor does."""

    def next_unacked(self, ledger_id: int, entry_id: int, kept: BitMap | None) -> int:
        while entry_id in self.acked or (kept is not None and entry_id in kept):
            entry_id += 1
        return entry_id


@pytest.mark.parametrize("cached_from", [0, 100])
def test_entry_goes_out_only_if_every_gate_lets_it_pass(cached_from: int) -> None:
    async def main() -> None:
        even, thirds = PickyGate(lambda each: each % 2 == 0), PickyGate(lambda each: each % 3 == 0)
        reader = Reader(FakeLedger(20, cached_from=cached_from), FakeCursor())
        reader.source.add_gate(even)
        reader.source.add_gate(thirds)
        assert await reader.pull(4) == fresh(0, 6, 12, 18)
        assert even.asked == list(range(20))
        assert thirds.asked == list(range(0, 20, 2)), "the second gate sees what the first let pass"

    asyncio.run(main())


def test_removed_gate_is_not_asked_again() -> None:
    async def main() -> None:
        none, odd = PickyGate(lambda each: False), PickyGate(lambda each: each % 2 == 1)
        reader = Reader(FakeLedger(6), FakeCursor())
        reader.source.add_gate(none)
        reader.source.add_gate(odd)
        reader.source.remove_gate(none)
        assert await reader.pull(3) == fresh(1, 3, 5)
        assert none.asked == []

    asyncio.run(main())


def test_entries_that_any_gate_keeps_are_not_read() -> None:
    async def main() -> None:
        first = PickyGate(lambda each: True, kept=BitMap([0, 1, 2]))
        second = PickyGate(lambda each: True, kept=BitMap([3, 4]))
        unknown = PickyGate(lambda each: True)
        reader = Reader(FakeLedger(8), HoleyCursor())
        for gate in (first, unknown, second):
            reader.source.add_gate(gate)
        assert await reader.pull(3) == fresh(5, 6, 7)
        assert first.asked == [5, 6, 7]
        assert (first.kept(5), second.kept(5)) == (BitMap([0, 1, 2]), BitMap([3, 4])), "not changed"

    asyncio.run(main())


def test_rewind_and_close_clear_every_gate() -> None:
    async def main() -> None:
        gates = [PickyGate(lambda each: True), PickyGate(lambda each: True)]
        reader = Reader(FakeLedger(8), FakeCursor())
        for gate in gates:
            reader.source.add_gate(gate)
        reader.source.rewind(Position(5, 3))
        assert [gate.cleared for gate in gates] == [1, 1]
        reader.source.close()
        assert [gate.cleared for gate in gates] == [2, 2]

    asyncio.run(main())


@pytest.mark.parametrize("cached_from", [0, 100])
def test_due_entries_pass_every_gate_but_the_one_that_scheduled_them(cached_from: int) -> None:
    class DueCursor(FakeCursor):
        def is_acked(self, ledger_id: int, entry_id: int) -> bool:
            return entry_id in self.acked

    async def main() -> None:
        delays, even = PickyGate(lambda each: each == 8), PickyGate(lambda each: each % 2 == 0)
        reader = Reader(FakeLedger(10, cached_from=cached_from), DueCursor())
        reader.source.add_gate(delays, schedules=True)
        reader.source.add_gate(even)
        assert await reader.pull(1) == fresh(8)
        asked = list(delays.asked)
        reader.source.deliver_due([(5, 4), (5, 3), (5, 2)])
        assert await reader.pull(2) == [(4, True), (2, True)], "in the order of their time"
        assert delays.asked == asked
        assert sorted(even.asked) == [2, 3, 4, 8]

    asyncio.run(main())
