"""Topics have their new policies soon, however many they are, and whatever is wrong with some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.topics.registry import policy_refresher
from magnetar.broker.topics.registry.policy_refresher import READ_AT_ONCE, PolicyRefresher
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import MetadataError, NamespaceNotFound
from magnetar.common.naming.topic_name import TopicName


@dataclass(eq=False)
class LoadedTopic:
    name: TopicName
    applied: list[Any] = field(default_factory=list)

    def apply_policies(self, policies: Any) -> None:
        self.applied.append(policies)


@dataclass
class SlowPolicies:
    """Reading takes a few turns of the event loop; what is read is the number of changes so far."""

    generation: int = 0
    reading: int = 0
    most: int = 0
    fails: Callable[[TopicName], Exception | None] = lambda name: None

    async def of_topic(self, name: TopicName) -> Any:
        self.reading += 1
        self.most = max(self.most, self.reading)
        found = self.generation
        for _ in range(3):
            await asyncio.sleep(0)
        self.reading -= 1
        error = self.fails(name)
        if error is not None:
            raise error
        return found


def topics(count: int) -> list[LoadedTopic]:
    return [LoadedTopic(TopicName.parse(f"t{number}")) for number in range(count)]


def refresher(policies: SlowPolicies) -> PolicyRefresher:
    tasks = []

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        tasks.append(asyncio.create_task(work, name=name))

    return PolicyRefresher(cast("PolicyStore", policies), spawn)


def as_topics(found: list[LoadedTopic]) -> list[Topic]:
    return cast("list[Topic]", found)


def test_those_of_many_are_read_together_and_never_too_many_at_once() -> None:
    async def scenario() -> None:
        policies, loaded = SlowPolicies(), topics(3 * READ_AT_ONCE + 1)
        each = refresher(policies)
        each.refresh(as_topics(loaded))
        await each.applied(10)
        assert all(topic.applied == [0] for topic in loaded)
        assert policies.most == READ_AT_ONCE

    asyncio.run(scenario())


def test_what_changes_while_it_is_read_is_read_again() -> None:
    async def scenario() -> None:
        policies, loaded = SlowPolicies(), topics(2)
        each = refresher(policies)
        each.refresh(as_topics(loaded))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert policies.reading == 2
        policies.generation = 1
        each.refresh(as_topics(loaded[:1]))
        await each.applied(10)
        assert [topic.applied[-1] for topic in loaded] == [1, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [NamespaceNotFound("gone"), ValueError("damaged")])
def test_what_is_wrong_with_one_keeps_no_other_from_its_own(error: Exception) -> None:
    async def scenario() -> None:
        loaded = topics(3)
        policies = SlowPolicies(fails=lambda name: error if name is loaded[0].name else None)
        each = refresher(policies)
        each.refresh(as_topics(loaded))
        await each.applied(10)
        assert [topic.applied for topic in loaded] == [[], [0], [0]]

    asyncio.run(scenario())


def test_those_that_cannot_be_read_now_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresher, "RETRY_S", 0.001)

    async def scenario() -> None:
        policies, loaded = SlowPolicies(), topics(2)
        policies.fails = lambda name: MetadataError("away") if name is loaded[0].name else None
        each = refresher(policies)
        each.refresh(as_topics(loaded))
        await each.applied(0.05)
        assert [topic.applied for topic in loaded] == [[], [0]]
        policies.fails = lambda name: None
        await each.applied(10)
        assert [topic.applied for topic in loaded] == [[0], [0]]

    asyncio.run(scenario())
