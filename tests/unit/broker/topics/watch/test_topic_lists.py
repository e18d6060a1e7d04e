"""Watchers hear of every topic that comes or goes, whatever happens to the watch on metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from magnetar.broker.topics.watch.topic_list_watcher import TopicListWatcher
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.errors import MetadataError
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.managed_ledger import create_managed_ledgers, delete_managed_ledger

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker
from tests.unit.ledger.managed_ledger.harness import until


async def watch(
    made: Topics, peer: ListeningPeer, text: str = ".*/orders.*", number: int = 1
) -> TopicListWatcher:
    return await made.lists.watch(DEFAULT_NAMESPACE, 1, TopicPattern(text), peer)


def told(peer: ListeningPeer) -> tuple[set[str], set[str]]:
    """(what a client thinks is there that was not at the beginning, what it thinks is gone)."""
    added: set[str] = set()
    removed: set[str] = set()
    for command in peer.commands:
        update = command.watchTopicUpdate
        for topic in update.new_topics:
            assert topic not in added
            added.add(topic)
            removed.discard(topic)
        for topic in update.deleted_topics:
            assert topic not in removed
            added.discard(topic)
            removed.add(topic)
    return added, removed


def full(*texts: str) -> set[str]:
    return {TopicName.parse(text).full for text in texts}


def test_topics_that_come_and_go_are_told_whoever_makes_them() -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders-0")
        peer, other = ListeningPeer(), ListeningPeer()
        watcher = await watch(made, peer)
        (await watch(made, other, ".*/nothing.*")).begin()
        assert watcher.begin()[0] == sorted(full("orders-0"))
        await made.load("orders-1")
        await made.load("invoices")
        await create_managed_ledgers(made.ledgers, ["persistent://public/default/orders-2"])
        await until(lambda: told(peer)[0] == full("orders-1", "orders-2"))
        await made.registry.delete(TopicName.parse("orders-0"), force=False)
        await delete_managed_ledger(made.ledgers, "persistent://public/default/orders-2")
        await until(lambda: told(peer) == (full("orders-1"), full("orders-0", "orders-2")))
        assert not other.commands

    in_a_broker(scenario)


def test_other_topic_metadata_writes_notify_no_watcher() -> None:
    async def scenario(made: Topics) -> None:
        peer = ListeningPeer()
        (await watch(made, peer)).begin()
        topic: Any = await made.load("orders")
        await until(lambda: bool(peer.commands))
        for _ in range(3):
            await topic.ledger.change_properties(lambda _: {"a": "b"})
        await asyncio.sleep(1)
        assert len(peer.commands) == 1

    in_a_broker(scenario)


def test_a_lost_watch_costs_no_news() -> None:
    async def scenario(made: Topics) -> None:
        await made.load("orders-0")
        peer = ListeningPeer()
        (await watch(made, peer)).begin()
        made.process.metadata.lose_watches()
        await made.registry.delete(TopicName.parse("orders-0"), force=False)
        await made.load("orders-1")
        made.process.metadata.lose_watches()
        await made.load("orders-2")
        await until(lambda: told(peer) == (full("orders-1", "orders-2"), full("orders-0")))

    in_a_broker(scenario)


def test_nothing_is_told_before_the_client_has_its_list() -> None:
    async def scenario(made: Topics) -> None:
        peer = ListeningPeer()
        watcher = await watch(made, peer)
        await made.load("orders-0")
        await asyncio.sleep(1)
        assert not peer.commands
        assert watcher.begin()[0] == sorted(full("orders-0"))
        await asyncio.sleep(1)
        assert not peer.commands

    in_a_broker(scenario)


def test_non_persistent_topics_are_told_to_those_who_ask_for_them() -> None:
    async def scenario(made: Topics) -> None:
        first, second = (f"non-persistent://public/default/orders-{number}" for number in range(2))
        await made.load(first)
        peer, persistent = ListeningPeer(), ListeningPeer()
        watcher = await watch(made, peer, "non-persistent://.*")
        (await watch(made, persistent)).begin()
        assert watcher.begin()[0] == [first]
        await made.load(second)
        await made.registry.delete(TopicName.parse(first), force=False)
        await until(lambda: told(peer) == ({second}, {first}))
        assert not persistent.commands

    in_a_broker(scenario)


def test_namespace_is_followed_only_with_watchers() -> None:
    async def scenario(made: Topics) -> None:
        watchers = [await watch(made, ListeningPeer(), pattern) for pattern in (".*a", ".*a", ".*b")]
        assert len(made.lists._followed) == 1
        (followed,) = made.lists._followed.values()
        assert len(followed.by_pattern) == 2
        for watcher in watchers:
            made.lists.unwatch(DEFAULT_NAMESPACE, watcher)
            made.lists.unwatch(DEFAULT_NAMESPACE, watcher)
        assert not made.lists._followed
        assert followed.task is not None
        await asyncio.wait([followed.task])
        await made.load("orders")
        again = await watch(made, ListeningPeer())
        assert again.begin()[0] == sorted(full("orders"))

    in_a_broker(scenario)


def test_metadata_that_does_not_answer_is_said_and_the_next_one_may_have_it() -> None:
    async def scenario(made: Topics) -> None:
        children = made.process.metadata.children

        async def failing(prefix: str) -> Any:
            raise MetadataError("not now")

        made.process.metadata.children = failing  # type: ignore[method-assign]
        with pytest.raises(MetadataError):
            await watch(made, ListeningPeer())
        assert not made.lists._followed
        made.process.metadata.children = children  # type: ignore[method-assign]
        await watch(made, ListeningPeer())

    in_a_broker(scenario)


def test_unexpected_error_loses_no_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(made: Topics) -> None:
        peer = ListeningPeer()
        (await watch(made, peer)).begin()
        (followed,) = made.lists._followed.values()
        change, failures = followed.change, 3

        def failing(self: object, name: TopicName, there: bool) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise KeyError(name)
            change(name, there)

        monkeypatch.setattr(type(followed), "change", failing)
        await made.load("orders-0")
        await made.load("orders-1")
        await until(lambda: told(peer)[0] == full("orders-0", "orders-1"))
        await made.load("orders-2")
        await until(lambda: told(peer)[0] == full("orders-0", "orders-1", "orders-2"))

    in_a_broker(scenario)
