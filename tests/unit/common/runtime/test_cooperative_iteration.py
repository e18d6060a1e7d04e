"""Cooperative iteration keeps the order of items and yields to other tasks."""

from __future__ import annotations

import asyncio

from magnetar.common.runtime.cooperative_iteration import ITEMS_PER_TURN, iterate_cooperatively

from tests.unit.common.runtime.turn_counter import TurnCounter


def test_items_keep_their_order_and_other_tasks_run_in_between() -> None:
    async def scenario() -> None:
        counter = TurnCounter()
        items = range(10 * ITEMS_PER_TURN + 1)
        assert [item async for item in iterate_cooperatively(items)] == list(items)
        assert counter.turns >= 10
        await counter.end()

    asyncio.run(scenario())
