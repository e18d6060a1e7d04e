from __future__ import annotations

import asyncio

import pytest
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from pyroaring import BitMap

from tests.unit.broker.subscriptions.fakes import FakeCursor, FakeLedger
from tests.unit.broker.subscriptions.source_reader import Reader, fresh


@pytest.mark.parametrize("cached_from", [0, 7, 100])
def test_every_entry_comes_once_in_order_from_cache_storage_or_both(cached_from: int) -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(20, cached_from=cached_from), FakeCursor())
        assert await reader.pull(20) == fresh(*range(20))
        assert reader.source.peek(5) is None

    asyncio.run(main())


def test_runs_are_taken_whole_and_only_as_many_as_fit() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(8, cached_from=100), FakeCursor())
        assert await reader.pull(1) == fresh(0)  # the read brought 0 to 4, each a run of its own
        assert [run.first_entry_id for run in reader.source.take_runs(2, 1_000)] == [1, 2]
        assert [run.first_entry_id for run in reader.source.take_runs(9, 1)] == [3], "one may pass the bound"
        assert await reader.pull(4) == fresh(4, 5, 6, 7)
        assert reader.source.take_runs(9, 1_000) == []
        assert reader.budget.reads == 0, "what was taken is settled"

    asyncio.run(main())


def test_no_run_is_taken_before_what_is_to_be_replayed_or_beyond_a_chunk() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(8, cached_from=100), FakeCursor())
        assert await reader.pull(2) == fresh(0, 1)
        reader.source.replay(5, 0)
        assert reader.source.take_runs(9, 1_000) == []
        assert await reader.pull(1) == [(0, True)]
        reader.source._fresh[1].flags = RUN_CHUNK
        assert [run.first_entry_id for run in reader.source.take_runs(9, 1_000)] == [2]
        assert reader.source.take_runs(9, 1_000) == []

    asyncio.run(main())


def test_a_run_with_more_messages_than_permits_is_not_taken_whole() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(8, cached_from=0), FakeCursor())
        assert reader.source.peek(9) is not None
        reader.source._fresh[0].message_counts = [3]
        assert reader.source.take_runs(2, 1_000) == []
        assert [run.messages for run in reader.source.take_runs(4, 1_000)] == [3, 1]

    asyncio.run(main())


def test_acknowledged_entries_are_left_out() -> None:
    async def main() -> None:
        cursor = FakeCursor()
        cursor.acked = {0, 1, 4, 9}
        reader = Reader(FakeLedger(10, cached_from=6), cursor)
        assert await reader.pull(6) == fresh(2, 3, 5, 6, 7, 8)
        assert reader.source.peek(5) is None

    asyncio.run(main())


@pytest.mark.parametrize("cached_from", [0, 100])
def test_replayed_entries_come_first_oldest_first_and_only_those_asked_for(cached_from: int) -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(20, cached_from=cached_from), FakeCursor())
        await reader.pull(10)
        for entry_id in (7, 2, 3, 6):
            reader.source.replay(5, entry_id)
        assert await reader.pull(6) == [(2, True), (3, True), (6, True), (7, True), (10, False), (11, False)]

    asyncio.run(main())


def test_replayed_entries_near_each_other_are_read_together() -> None:
    async def main() -> None:
        ledger = FakeLedger(200, cached_from=200)
        reader = Reader(ledger, FakeCursor())
        await reader.pull(200)
        reads = ledger.reads
        for entry_id in range(0, 100, 4):
            reader.source.replay(5, entry_id)
        assert await reader.pull(25) == [(entry_id, True) for entry_id in range(0, 100, 4)]
        assert ledger.reads == reads + 13, "two of them are in each span of 5, the size of a read here"

    asyncio.run(main())


def test_an_entry_acknowledged_while_it_waits_for_replay_is_not_delivered_again() -> None:
    async def main() -> None:
        cursor = FakeCursor()
        reader = Reader(FakeLedger(10), cursor)
        await reader.pull(5)
        reader.source.replay(5, 1)
        reader.source.replay(5, 3)
        cursor.ack(5, 1)
        assert await reader.pull(2) == [(3, True), (5, False)]

    asyncio.run(main())


def test_a_rewind_drops_what_was_read_ahead_even_a_read_under_way() -> None:
    async def main() -> None:
        cursor = FakeCursor()
        reader = Reader(FakeLedger(10, cached_from=100), cursor)
        await reader.pull(3)
        reader.source.peek(3)
        cursor.acked = {0}
        reader.source.rewind(cursor.mark_delete)
        assert await reader.pull(9) == fresh(*range(1, 10))

    asyncio.run(main())


def test_unreadable_entries_are_skipped_and_acknowledged() -> None:
    async def main() -> None:
        ledger, cursor = FakeLedger(10, cached_from=100), FakeCursor()
        ledger.unreadable = {0, 4, 5, 9}
        reader = Reader(ledger, cursor)
        assert await reader.pull(6) == fresh(1, 2, 3, 6, 7, 8)
        reader.source.peek(3)
        await asyncio.gather(*reader.tasks)
        assert cursor.acked == {0, 4, 5, 9}

    asyncio.run(main())


class AckedCursor(FakeCursor):
    """Asked entry by entry as well."""

    def is_acked(self, ledger_id: int, entry_id: int) -> bool:
        return entry_id in self.acked


@pytest.mark.parametrize("cached_from", [0, 100])
def test_due_entries_come_first_in_their_own_order(cached_from: int) -> None:
    async def main() -> None:
        cursor = AckedCursor()
        reader = Reader(FakeLedger(20, cached_from=cached_from), cursor)
        assert await reader.pull(12) == fresh(*range(12))
        cursor.acked = {4}
        reader.source.replay(5, 2)
        reader.source.deliver_due([(5, 9), (5, 3), (5, 4), (5, 5), (5, 1)])
        assert reader.source.replaying
        assert await reader.pull(6, lot=1) == [
            (9, True),
            (3, True),
            (5, True),
            (1, True),
            (2, True),
            (12, False),
        ]
        assert not reader.source.replaying

    asyncio.run(main())


@pytest.mark.parametrize("cached_from", [0, 7, 100])
def test_in_order_nothing_that_comes_again_passes_what_is_older_and_comes_again(cached_from: int) -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(12, cached_from=cached_from), AckedCursor())
        source = reader.source
        source.in_order = True
        assert await reader.pull(10) == fresh(*range(10))
        source.replay_all([(5, 4), (5, 8), (5, 9)])
        assert await reader.pull(1, lot=1) == [(4, True)]
        source.replay(5, 6)
        assert await reader.pull(1, lot=1) == [(6, True)]
        assert source.peek(1) or cached_from > 8, "8 is on its way"
        source.replay(5, 2)
        source.deliver_due([(5, 5), (5, 0)])
        assert await reader.pull(3, lot=1) == [(2, True), (8, True), (9, True)]
        assert await reader.pull(1, lot=1) == [(5, True)]
        source.replay(5, 3)
        assert await reader.pull(1, lot=1) == [(0, True)], "it is older"
        assert await reader.pull(2, lot=1) == [(3, True), (10, False)]

    asyncio.run(main())


def taken(passed_and_taken: tuple[int, list[Run]]) -> tuple[int, list[int]]:
    passed, runs = passed_and_taken
    return passed, [run.first_entry_id for run in runs]


def test_due_entries_are_taken_as_many_as_fit() -> None:
    async def main() -> None:
        cursor = AckedCursor()
        source = Reader(FakeLedger(20, cached_from=0), cursor).source
        source.deliver_due([(5, 9), (5, 3), (5, 4), (5, 5), (5, 1)])
        assert source.peek(1) is not None
        cursor.acked = {3}
        assert taken(source.take_replayed(2, 1_000)) == (3, [9, 4])
        source._replayed[1].flags = RUN_CHUNK
        assert taken(source.take_replayed(9, 1)) == (1, [5]), "one may pass the bound"
        assert taken(source.take_replayed(9, 1_000)) == (0, [])
        source._replayed[0].flags = 0
        cursor.acked = {1}
        assert taken(source.take_replayed(9, 1_000)) == (1, [])

    asyncio.run(main())


def test_entries_behind_a_due_one_are_not_read_on_from_when_memory_is_asked_back() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(12, cached_from=100), AckedCursor())
        assert await reader.pull(1) == fresh(0)
        reader.source.deliver_due([(5, 3)])
        assert await reader.pull(1) == [(3, True)]
        await asyncio.sleep(0.01)
        read = reader.source.read_position
        reader.source.give_back()
        assert reader.source.read_position == read >= Position(5, 4)
        assert await reader.pull(1) == [(1, True)]

    asyncio.run(main())


def test_entries_behind_one_that_was_kept_are_not_read_on_from_when_memory_is_asked_back() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(12, cached_from=100), AckedCursor())
        assert await reader.pull(1) == fresh(0)
        reader.source.read_again(5, BitMap([3]))
        assert await reader.pull(1) == [(3, True)]
        await asyncio.sleep(0.01)
        read = reader.source.read_position
        reader.source.give_back()
        assert reader.source.read_position == read >= Position(5, 4)
        assert await reader.pull(1) == [(1, True)]

    asyncio.run(main())
