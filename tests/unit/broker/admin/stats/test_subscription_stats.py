"""Statistics of a Key_Shared subscription with many consumers, over a topic in memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.admin.stats.subscription_stats import Wanted, subscription_stats
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.unit.broker.subscriptions.serving import Serving

TOPIC = cast(Any, SimpleNamespace(storage_entries=0, storage_bytes=0))
CONSUMERS = 20


@pytest.fixture
def serving() -> Iterator[Serving]:
    made = Serving(SubType.Key_Shared)
    for number in range(CONSUMERS):
        made.join(f"c{number}", permits=10)
    yield made
    made.close()


def test_consumers_show_all_slots_once_and_which_of_them_wait_for_whom(serving: Serving) -> None:
    def publish() -> None:
        for number in range(50):
            serving.topic.append(key=str(number))
        serving.subscription.wake()

    serving.do(publish)
    for number in range(CONSUMERS, 2 * CONSUMERS):
        serving.join(f"c{number}")
    shown = subscription_stats(TOPIC, serving.subscription, Wanted())
    slots = [
        slot
        for each in shown["consumers"]
        for first, last in each["keyHashRangeArrays"]
        for slot in range(first, last + 1)
    ]
    assert sorted(slots) == list(range(65_536))
    assert 0 < shown["drainingHashesCount"] == sum(each["drainingHashesCount"] for each in shown["consumers"])
    for each in shown["consumers"]:
        owned = [range(first, last + 1) for first, last in each["keyHashRangeArrays"]]
        for draining in each["drainingHashes"]:
            assert not any(draining["hash"] in slots for slots in owned), "it waits for who had it before"


def test_however_many_consumers_there_are_the_ranges_and_what_drains_are_looked_at_once(
    serving: Serving,
) -> None:
    looks = []

    class Bounds(list[int]):
        def __iter__(self) -> Iterator[int]:
            looks.append("bounds")
            return super().__iter__()

    class Slots(dict[int, Any]):
        def items(self) -> Any:
            looks.append("draining")
            return super().items()

    key_shared = serving.subscription.key_shared
    assert key_shared is not None
    key_shared.selector.bounds = Bounds(key_shared.selector.bounds)
    key_shared.draining.slots = Slots(key_shared.draining.slots)
    shown = subscription_stats(TOPIC, serving.subscription, Wanted())
    assert len(shown["consumers"]) == CONSUMERS
    assert sorted(looks) == ["bounds", "draining"]
