"""What a watcher of topics is told, and Pulsar's hash of a list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.broker.topics.watch.topic_list_watcher import (
    UPDATE_INTERVAL_S,
    MatchingTopics,
    TopicListWatcher,
    topics_hash,
)
from magnetar.broker.topics.watch.topic_pattern import TopicPattern
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.loop import SimLoop
from magnetar.sim.loop import run as run_loop

from tests.unit.broker.topics.world import ListeningPeer


def names(*texts: str) -> list[TopicName]:
    return [TopicName.parse(text) for text in texts]


def full(*texts: str) -> list[str]:
    return [name.full for name in names(*texts)]


def test_the_hash_is_the_one_that_pulsar_computes() -> None:
    """CRC32-C of 123456789 is 0xe3069283, of which Guava writes the lowest byte first."""
    assert topics_hash([]) == "00000000"
    assert topics_hash(["123456789"]) == "839206e3"
    assert topics_hash(["b", "a"]) == topics_hash(["a", "b"]) == topics_hash(["a,b"])
    assert topics_hash(["a"]) != topics_hash(["b"])


def test_the_hash_sorts_as_java_does() -> None:
    """By UTF-16 units a character beyond the first 65,536 comes before those at their end."""
    late, beyond = "\uffee", "\U00010000"
    assert late < beyond
    assert topics_hash([late, beyond]) == topics_hash([f"{beyond},{late}"])


def on_a_loop(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    run_loop(SimLoop(0), main())


def updates(peer: ListeningPeer) -> list[Any]:
    return [command.watchTopicUpdate for command in peer.commands]


def test_changes_are_told_with_the_hash_of_the_list_as_it_is_then() -> None:
    async def scenario() -> None:
        matching = MatchingTopics(TopicPattern("public/default/a.*"), names("a1", "b1"))
        peer = ListeningPeer()
        watcher = TopicListWatcher(7, peer, matching)
        assert watcher.begin() == (full("a1"), topics_hash(full("a1")))
        matching.change(TopicName.parse("a2"), True)
        matching.change(TopicName.parse("b2"), True)
        await asyncio.sleep(0)
        await asyncio.sleep(UPDATE_INTERVAL_S)
        matching.change(TopicName.parse("a1"), False)
        await asyncio.sleep(UPDATE_INTERVAL_S)
        first, second = updates(peer)
        assert (first.watcher_id, list(first.new_topics), list(first.deleted_topics)) == (7, full("a2"), [])
        assert first.topics_hash == topics_hash(full("a1", "a2"))
        assert (list(second.new_topics), list(second.deleted_topics)) == ([], full("a1"))
        assert second.topics_hash == topics_hash(full("a2"))

    on_a_loop(scenario)


def test_many_changes_at_once_are_few_updates() -> None:
    async def scenario() -> None:
        matching = MatchingTopics(TopicPattern(".*"), [])
        peer = ListeningPeer()
        TopicListWatcher(1, peer, matching).begin()
        for number in range(1_000):
            matching.change(TopicName.parse(f"t{number}"), True)
            if number % 100 == 0:
                await asyncio.sleep(UPDATE_INTERVAL_S / 20)
        await asyncio.sleep(2 * UPDATE_INTERVAL_S)
        assert 1 < len(updates(peer)) <= 10
        told = [topic for update in updates(peer) for topic in update.new_topics]
        assert sorted(told) == sorted(matching.topics)

    on_a_loop(scenario)


def test_a_client_that_does_not_read_is_told_the_difference_once_it_does() -> None:
    async def scenario() -> None:
        matching = MatchingTopics(TopicPattern(".*"), names("stays", "goes"))
        peer = ListeningPeer(writable=False)
        watcher = TopicListWatcher(1, peer, matching)
        watcher.begin()
        for _ in range(50):
            matching.change(TopicName.parse("flickers"), True)
            matching.change(TopicName.parse("flickers"), False)
        matching.change(TopicName.parse("goes"), False)
        matching.change(TopicName.parse("comes"), True)
        await asyncio.sleep(1)
        assert not peer.commands
        peer.writable = True
        watcher.wake()
        await asyncio.sleep(0.001)
        (update,) = updates(peer)
        assert (list(update.new_topics), list(update.deleted_topics)) == (full("comes"), full("goes"))

    on_a_loop(scenario)


def test_what_came_and_went_between_two_updates_is_not_mentioned() -> None:
    async def scenario() -> None:
        matching = MatchingTopics(TopicPattern(".*"), [])
        peer = ListeningPeer()
        TopicListWatcher(1, peer, matching).begin()
        matching.change(TopicName.parse("flickers"), True)
        matching.change(TopicName.parse("flickers"), False)
        await asyncio.sleep(1)
        assert not peer.commands

    on_a_loop(scenario)


def test_a_closed_watcher_is_told_nothing() -> None:
    async def scenario() -> None:
        matching = MatchingTopics(TopicPattern(".*"), [])
        peer = ListeningPeer()
        watcher = TopicListWatcher(1, peer, matching)
        watcher.begin()
        matching.change(TopicName.parse("a"), True)
        watcher.close()
        watcher.close()
        matching.change(TopicName.parse("b"), True)
        await asyncio.sleep(1)
        assert not peer.commands
        assert not matching.watchers

    on_a_loop(scenario)
