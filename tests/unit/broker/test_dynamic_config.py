"""Settings that change while brokers run reach every broker, whatever becomes of the watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from magnetar.broker import dynamic_config
from magnetar.broker.config import BrokerConfig
from magnetar.broker.dynamic_config import DYNAMIC, BadValue, DynamicConfig, NotDynamic
from magnetar.broker.load.config import DYNAMIC as LOAD_SETTINGS
from magnetar.broker.load.config import LoadConfig, SheddingConfig
from magnetar.broker.topics.config import TopicConfig
from magnetar.common.config.setting_values import settings_of
from magnetar.common.errors import MetadataError, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.store import Watch, WatchEvent
from magnetar.common.metadata.values import DynamicConfiguration, encode

KEYS = Keys("standalone")
KEY = "maxConcurrentTopicLoadRequest"


class FailingWatch:
    """Ends at once, with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __aiter__(self) -> FailingWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        raise self._error

    async def aclose(self) -> None:
        pass


class Store(SqliteMetadataStore):
    """Its first watches end with these errors."""

    watch_errors: tuple[Exception, ...] = ()

    def watch(self, prefix: str) -> Watch:  # type: ignore[override]
        if self.watch_errors:
            error, *rest = self.watch_errors
            self.watch_errors = tuple(rest)
            return FailingWatch(error)
        return super().watch(prefix)


def with_store(tmp_path: Path, body: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        store.__class__ = Store
        assert isinstance(store, Store)
        try:
            await body(store)
        finally:
            await store.close()

    asyncio.run(main())


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_every_dynamic_setting_is_one_that_brokers_have() -> None:
    assert set(settings_of(BrokerConfig)) >= DYNAMIC
    assert set(settings_of(LoadConfig)) >= LOAD_SETTINGS


def test_settings_of_another_part_change_as_well(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        key, started_with = "loadBalancerSheddingEnabled", LoadConfig(shedding=SheddingConfig(hits=5))
        one, other = DynamicConfig(BrokerConfig(), store, KEYS), DynamicConfig(BrokerConfig(), store, KEYS)
        load = one.follow_also(started_with, LOAD_SETTINGS)
        shedding = load.shedding
        await one.start(lambda: None)
        await other.start(lambda: None)
        assert set(one.names) == DYNAMIC | LOAD_SETTINGS
        assert set(other.names) == DYNAMIC, "a standalone has no such settings"
        with pytest.raises(NotDynamic):
            await other.set(key, "false")
        await one.set(key, "false")
        assert not shedding.enabled, "who holds a part of it sees it"
        assert started_with.shedding.enabled
        assert one.running()["loadBalancerSheddingConditionHitCountThreshold"] == "5"
        await one.set(KEY, "7")
        await eventually(lambda: other.current.topics.loads_max == 7)
        await one.remove(key)
        assert shedding.enabled
        with pytest.raises(NotDynamic):
            await one.set("loadBalancerEnabled", "false")
        await one.close()
        await other.close()

    with_store(tmp_path, body)


def test_a_change_reaches_other_brokers_and_nobody_elses_configuration(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        started_with = BrokerConfig(topics=TopicConfig(loads_max=10))
        one, other = DynamicConfig(started_with, store, KEYS), DynamicConfig(BrokerConfig(), store, KEYS)
        heard: list[int] = []
        await one.start(lambda: None)
        await other.start(lambda: heard.append(other.current.topics.loads_max))
        topics = other.current.topics
        await one.set(KEY, " 7 ")
        assert one.current.topics.loads_max == 7, "at once"
        await eventually(lambda: heard == [7])
        assert topics.loads_max == 7, "who holds a part of the configuration sees it"
        assert started_with.topics.loads_max == 10
        assert await other.values() == {KEY: "7"}
        await other.remove(KEY)
        assert heard == [7, 5_000]
        await eventually(lambda: one.current.topics.loads_max == 10)
        assert await one.values() == {}
        await one.close()
        await other.close()
        await other.close()

    with_store(tmp_path, body)


def test_a_broker_that_starts_later_has_what_was_changed(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        one = DynamicConfig(BrokerConfig(), store, KEYS)
        await one.set(KEY, "7")
        later = DynamicConfig(BrokerConfig(), store, KEYS)
        heard: list[int] = []
        await later.start(lambda: heard.append(1))
        assert later.current.topics.loads_max == 7
        assert later.running()[KEY] == "7"
        assert heard == []
        await later.close()

    with_store(tmp_path, body)


def test_what_is_no_value_or_cannot_change_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        one = DynamicConfig(BrokerConfig(), store, KEYS)
        with pytest.raises(NotDynamic):
            await one.set("brokerServicePort", "1")
        with pytest.raises(NotDynamic):
            await one.remove("brokerServicePort")
        for text in ("", "x", "0"):
            with pytest.raises(BadValue, match=KEY):
                await one.set(KEY, text)
        assert await one.values() == {}

    with_store(tmp_path, body)


def test_what_another_release_wrote_and_this_one_does_not_understand_is_ignored(tmp_path: Path) -> None:
    async def body(store: Store) -> None:
        stored = DynamicConfiguration(values={KEY: "many", "ofTheFuture": "1", "maxTopicsPerNamespace": "3"})
        await store.put(KEYS.dynamic_configuration, encode(stored))
        one = DynamicConfig(BrokerConfig(), store, KEYS)
        await one.start(lambda: None)
        assert one.current.topics.loads_max == 5_000
        assert one.current.policies.limits.topics_per_namespace_max == 3
        await one.set(KEY, "5")
        assert (await one.values())["ofTheFuture"] == "1"
        await one.close()

    with_store(tmp_path, body)


@pytest.mark.parametrize("error", [WatchLost("behind"), MetadataError("away")])
def test_a_watch_that_is_lost_is_made_again_and_nothing_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(dynamic_config, "RETRY_S", 0.01)

    async def body(store: Store) -> None:
        one, other = DynamicConfig(BrokerConfig(), store, KEYS), DynamicConfig(BrokerConfig(), store, KEYS)
        store.watch_errors = (error, error)
        await one.start(lambda: None)
        await other.set(KEY, "7")
        await eventually(lambda: one.current.topics.loads_max == 7)
        await eventually(lambda: not store.watch_errors)
        await other.set(KEY, "8")
        await eventually(lambda: one.current.topics.loads_max == 8)
        await one.close()

    with_store(tmp_path, body)
