"""Listing thousands of topics yields to other tasks."""

from __future__ import annotations

import pytest
from magnetar.common.metadata.values import TopicHead, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.cooperative_iteration import ITEMS_PER_TURN

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import Topics, in_a_broker
from tests.unit.common.runtime.turn_counter import TurnCounter


def test_listing_the_topics_of_a_namespace_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Topics) -> None:
        names = [TopicName.parse(f"topic-{number:04d}") for number in range(20 * ITEMS_PER_TURN)]
        metadata = made.registry._metadata
        for name in names:
            await metadata.put(KEYS.topic_head(name), encode(TopicHead()))
        namespace = NamespaceName("public", "default")
        listing = await metadata.children(KEYS.topic_heads_prefix("persistent", namespace))

        async def at_once(_prefix: str) -> object:
            return listing  # simulated time stands still while other tasks run

        monkeypatch.setattr(metadata, "children", at_once)
        counter = TurnCounter()
        assert await made.registry.list(namespace, persistent=True) == [name.full for name in names]
        assert counter.turns >= 20
        await counter.end()

    in_a_broker(scenario)
