"""The watch for partitions that are added to topics."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from magnetar.client.errors import ConnectionLost
from magnetar.client.lookup import Lookup
from magnetar.client.partition_growth import PartitionGrowth
from magnetar.common.naming.topic_name import TopicName

from tests.unit.client.virtual_network import VirtualNetwork, virtually

TOPICS = [TopicName.parse(f"persistent://public/default/{name}") for name in ("a", "b")]


class Counts:
    """Says that each topic has three partitions."""

    async def partition_count(self, topic: TopicName, *, creates: bool) -> int:
        assert not creates
        return 3


@pytest.mark.parametrize("error", [ConnectionLost("it ended"), RuntimeError("a mistake")])
def test_an_error_of_one_topic_keeps_no_other_from_growing_and_is_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[str] = []

    async def fails(count: int) -> None:
        opened.append("a")
        if opened.count("a") < 3:
            raise error

    async def grows(count: int) -> None:
        opened.append("b")

    async def scenario(network: VirtualNetwork) -> None:
        growth = PartitionGrowth(cast(Any, Counts()), every_s=10)
        growth.watch("a", TOPICS[0], 2, fails)
        growth.watch("b", TOPICS[1], 2, grows)
        await asyncio.sleep(45)
        assert opened == ["a", "b", "a", "a"]
        await growth.close()

    with caplog.at_level(logging.INFO, "magnetar.client.partition_growth"):
        virtually(scenario)
    assert [record.getMessage().split(":")[1] for record in caplog.records] == ["//public/default/a"] * 2
    assert all((record.exc_info is None) == isinstance(error, ConnectionLost) for record in caplog.records)


def test_what_is_forgotten_is_not_asked_for_any_more() -> None:
    async def never(count: int) -> None:
        raise AssertionError("it was forgotten")

    async def scenario(network: VirtualNetwork) -> None:
        growth = PartitionGrowth(cast(Lookup, Counts()), every_s=10)
        growth.watch("a", TOPICS[0], 2, never)
        growth.forget("a")
        await asyncio.sleep(45)
        await growth.close()

    virtually(scenario)
