from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest
import structlog.testing
from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.memory_config import MemoryConfig
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.entries import read_ahead
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.entry_cache import EntryCache

from tests.unit.broker.subscriptions.fakes import FakeCursor, FakeLedger
from tests.unit.broker.subscriptions.source_reader import Reader, fresh


def test_a_failed_read_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "READ_RETRY_S", 0.01)

    async def main() -> None:
        ledger = FakeLedger(5, cached_from=100)
        ledger.failures = 2
        reader = Reader(ledger, FakeCursor())
        assert await reader.pull(5) == fresh(*range(5))
        assert ledger.reads == 3

    asyncio.run(main())


def test_unexpected_read_error_is_logged_once_counted_and_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "READ_RETRY_S", 0.01)
    monkeypatch.setattr(read_ahead, "READ_RETRY_MAX_S", 0.03)
    counted = read_ahead.BROKEN_READS._value.get()

    async def main() -> None:
        ledger = FakeLedger(10, cached_from=100)
        ledger.failures, ledger.failure = 4, ZeroDivisionError("a mistake of ours")
        reader = Reader(ledger, FakeCursor())
        began = asyncio.get_running_loop().time()
        assert await reader.pull(5) == fresh(*range(5))
        assert asyncio.get_running_loop().time() - began > 0.01 + 0.02 + 0.03 + 0.03 - 0.01
        assert await reader.pull(5) == fresh(*range(5, 10))
        await asyncio.gather(*reader.tasks)
        assert reader.budget.reads == 0

    with structlog.testing.capture_logs() as logs:
        asyncio.run(main())
    assert read_ahead.BROKEN_READS._value.get() - counted == 4
    assert len(logs) == 1


@pytest.mark.parametrize("cached_from", [0, 100])
@pytest.mark.parametrize("replayed", [False, True])
def test_unaccepted_read_entries_are_read_again(
    cached_from: int, replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "READ_RETRY_S", 0.01)

    class BrokenGate:
        """Breaks at entry 3, a few times."""

        breaks = 3

        def hold(self, run: Run) -> list[Run]:
            if self.breaks and run.first_entry_id <= 3 <= run.last_entry_id:
                self.breaks -= 1
                raise ZeroDivisionError("a mistake of ours")
            return [run]

        def kept(self, ledger_id: int) -> None:
            return None

    async def main() -> None:
        reader = Reader(FakeLedger(10, cached_from=cached_from), FakeCursor())
        if replayed:
            assert await reader.pull(10) == fresh(*range(10))
            reader.source.replay_all([(5, each) for each in range(10)])
        reader.source.add_gate(cast(Any, BrokenGate()))
        came: list[tuple[int, bool]] = []
        for _ in range(4):
            try:
                came += await reader.pull(10 - len(came))
            except ZeroDivisionError:
                continue  # from memory: a turn that broke is made again at the next event
        assert came == [(each, replayed) for each in range(10)]

    asyncio.run(main())


def test_returned_entries_are_read_again_in_order() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(20, cached_from=100), FakeCursor())
        assert await reader.pull(2) == fresh(0, 1)
        assert reader.budget.reads > 0
        reader.source.give_back()
        assert await reader.pull(18) == fresh(*range(2, 20))

    asyncio.run(main())


def test_nothing_stays_charged_after_everything_was_delivered_or_dropped() -> None:
    async def main() -> None:
        reader = Reader(FakeLedger(20, cached_from=100), FakeCursor())
        await reader.pull(20)
        await asyncio.gather(*reader.tasks)
        assert reader.budget.reads == 0
        reader.source.rewind(Position(5, 3))
        await reader.pull(2)
        reader.source.close()
        await asyncio.gather(*reader.tasks)
        assert reader.budget.reads == 0

    asyncio.run(main())


def test_many_that_catch_up_at_once_with_room_for_one_read_all_come_to_their_end() -> None:
    """What was read is offered to its consumers before another reader takes its room."""

    async def main() -> None:
        readers, entries = 30, 10
        budget = ByteBudget(MemoryConfig(budget_megabytes=1), EntryCache(0))
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[Any]] = set()
        delivered = [0] * readers
        sources: list[EntrySource] = []

        def turn(number: int) -> None:
            peeked = sources[number].peek(entries)
            if peeked is not None:
                count = len(peeked[0].entries)
                delivered[number] += count
                sources[number].advance(count)
                loop.call_soon(turn, number)

        def wake(number: int) -> None:
            loop.call_soon(turn, number)

        ledgers = [FakeLedger(entries, cached_from=100) for _ in range(readers)]
        for number, ledger in enumerate(ledgers):
            sources.append(
                EntrySource(
                    cast(Any, ledger),
                    cast(Any, FakeCursor()),
                    DispatchConfig(read_entries_max=5, read_bytes_max=600_000),
                    budget,
                    lambda coro, _: tasks.add(asyncio.ensure_future(coro)),
                    partial(wake, number),
                )
            )
        for number in range(readers):
            turn(number)
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert delivered == [entries] * readers
        assert budget.reads == 0

    asyncio.run(main())


def test_entries_read_during_a_delivery_can_be_returned() -> None:
    class Other:
        def give_back(self) -> None:
            raise AssertionError("it holds nothing yet")

    async def main() -> None:
        budget = ByteBudget(MemoryConfig(budget_megabytes=1), EntryCache(0))
        config = DispatchConfig(read_entries_max=5, read_bytes_max=600_000)
        reader = Reader(FakeLedger(30, cached_from=100), FakeCursor(), config, budget)
        assert await reader.pull(5, lot=5) == fresh(*range(5))
        assert reader.source.reading
        await asyncio.gather(*reader.tasks)
        await asyncio.sleep(0)
        assert budget.reads > 0, "nobody takes what was read ahead"
        assert budget.reserve_read(Other(), 1024 * 1024), "nothing else may be held, so it is given back"
        assert budget.reads == 1024 * 1024

    asyncio.run(main())
