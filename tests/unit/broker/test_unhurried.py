"""Whoever goes through thousands of things lets others run."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.broker.unhurried import AT_ONCE, unhurried
from magnetar.common.metadata.values import TopicHead, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import Topics, in_a_broker


class Others:
    """Counts the turns that others have."""

    def __init__(self) -> None:
        self.turns = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def test_the_items_come_in_their_order_and_others_have_turns_in_between() -> None:
    async def scenario() -> None:
        others = Others()
        assert [item async for item in unhurried(range(10 * AT_ONCE + 1))] == list(range(10 * AT_ONCE + 1))
        assert others.turns >= 10
        await others.end()

    asyncio.run(scenario())


def test_listing_the_topics_of_a_namespace_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Topics) -> None:
        names = [TopicName.parse(f"topic-{number:04d}") for number in range(20 * AT_ONCE)]
        metadata = made.registry._metadata
        for name in names:
            await metadata.put(KEYS.topic_head(name), encode(TopicHead()))
        namespace = NamespaceName("public", "default")
        listing = await metadata.children(KEYS.topic_heads_prefix("persistent", namespace))

        async def at_once(_prefix: str) -> object:
            return listing  # simulated time stands still while others run

        monkeypatch.setattr(metadata, "children", at_once)
        others = Others()
        assert await made.registry.list(namespace, persistent=True) == [name.full for name in names]
        assert others.turns >= 20
        await others.end()

    in_a_broker(scenario)
