"""A consumer of a pattern is told of topics by a broker, or looks for them where brokers do not tell."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.client.consumer.topic_list import TopicListWatcher
from magnetar.client.errors import Refused
from magnetar.client.lookup import TopicPattern
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandWatchTopicListSuccess,
    FeatureFlags,
    ServerError,
)

PATTERN = TopicPattern.parse("public/default/orders-.*")
FIRST = "persistent://public/default/orders-1"
SECOND = "persistent://public/default/orders-2"


class World:
    """Brokers with topics, seen by one watcher, and what it opened."""

    def __init__(self, *, flags: FeatureFlags, refusal: Refused | None = None) -> None:
        self.feature_flags = flags
        self.watchers: dict[int, Any] = {}
        self.topics = [FIRST]
        self.opened: list[str] = []
        self.looked_up: list[str] = []
        self._refusal = refusal
        self._parts: Any = SimpleNamespace(
            lookup=self, next_id=lambda: 7, options=SimpleNamespace(operation_timeout_s=1.0)
        )

    async def connection_of(self, topic: str) -> World:
        self.looked_up.append(topic)
        return self

    async def topics_matching(self, pattern: TopicPattern) -> list[str]:
        return list(self.topics)

    async def request(self, command: BaseCommand, subject: str, timeout_s: float) -> BaseCommand:
        if self._refusal is not None:
            raise self._refusal
        found = CommandWatchTopicListSuccess(
            request_id=1, watcher_id=7, topic=self.topics, topics_hash="hash"
        )
        return BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=found)

    def write(self, frame: bytes) -> None:
        """Take what closes a watcher."""

    async def add(self, names: list[str]) -> None:
        self.opened += [name for name in names if name not in self.opened]

    async def remove(self, names: list[str]) -> None:
        assert not names

    async def until_opened(self, topics: list[str]) -> None:
        watcher = TopicListWatcher(self._parts, PATTERN, 0.001, self.add, self.remove)
        watching = asyncio.ensure_future(watcher.run())
        try:
            async with asyncio.timeout(5.0):
                while self.opened != topics:
                    await asyncio.sleep(0)
                    self.topics = topics
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        (FeatureFlags(), None),
        (FeatureFlags(supports_topic_watchers=True), Refused(ServerError.NotAllowedError, "it is too long")),
    ],
    ids=["no watchers", "refused"],
)
def test_topics_are_looked_for_where_brokers_do_not_tell(
    flags: FeatureFlags, refusal: Refused | None
) -> None:
    async def play() -> None:
        world = World(flags=flags, refusal=refusal)
        await world.until_opened([FIRST, SECOND])
        assert not world.watchers

    asyncio.run(play())


def test_a_broker_is_watched_and_not_a_service_that_only_answers_lookups() -> None:
    async def play() -> None:
        world = World(flags=FeatureFlags(supports_topic_watchers=True))
        await world.until_opened([FIRST])
        assert world.looked_up == [PATTERN.watched_at]
        assert not world.watchers

    asyncio.run(play())


def test_patterns_of_a_namespace_are_watched_at_several_brokers() -> None:
    other = TopicPattern.parse("public/default/bills-.*")
    assert PATTERN.watched_at.startswith("persistent://public/default/")
    assert PATTERN.watched_at != other.watched_at
