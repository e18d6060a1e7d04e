from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest
from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import DispatchConfig, MemoryConfig
from magnetar.broker.subscriptions import read_ahead
from magnetar.broker.subscriptions.entry_source import EntrySource
from magnetar.common.naming.position import Position
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


def test_what_was_read_and_given_back_is_read_again_in_order() -> None:
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


def test_what_was_read_while_the_last_of_an_earlier_read_was_delivered_can_be_asked_back() -> None:
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
