"""Topic lists of namespaces, optionally filtered by a pattern, and watchers of them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from magnetar.broker.handlers.client import Client, Opening, OpenWatcher
from magnetar.broker.topics.watch.topic_list_watcher import TopicListWatcher, topics_hash
from magnetar.broker.topics.watch.topic_pattern import TopicPattern, pattern_length
from magnetar.common.errors import NotAllowed, ServiceNotReady, TooManyRequests
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

WATCHERS_MAX: Final = 1_000
"""Maximum number of watchers of one connection."""


async def handle_get_topics(client: Client, command: CommandGetTopicsOfNamespace) -> None:
    """Responds with the topics of a namespace that match the client's pattern, if it has one.

    A namespace that does not exist has no topics, as in Pulsar. A pattern that is too long, or that the
    broker may not evaluate, is left to the client, which checks `filtered`. An unchanged list, by its hash,
    is not sent again.
    """
    services = client.services
    namespace = NamespaceName.parse(command.namespace)
    await services.authorizer.check_list(client.principal, namespace)
    pattern = _pattern(client, command.topics_pattern) if command.HasField("topics_pattern") else None
    mode = CommandGetTopicsOfNamespace.Mode
    topics: list[str] = []
    with services.lookup():
        if command.mode in (mode.PERSISTENT, mode.ALL):
            topics += await services.topics.list(namespace, persistent=True)
        if command.mode in (mode.NON_PERSISTENT, mode.ALL):
            topics += await services.topic_lists.non_persistent(namespace)
    if pattern is not None:
        topics = [topic for topic in topics if pattern.matches(TopicName.parse(topic))]
    hash_now = topics_hash(topics)
    changed = not command.HasField("topics_hash") or command.topics_hash != hash_now
    client.peer.write(
        commands.topics_of_namespace(
            command.request_id,
            topics if changed else (),
            topics_hash=hash_now,
            filtered=pattern is not None,
            changed=changed,
        )
    )


def _pattern(client: Client, text: str) -> TopicPattern | None:
    """Parses the pattern; None when it is left to the client."""
    topics = client.services.config.topics
    if not topics.pattern_evaluation or pattern_length(text) > topics.pattern_length_max:
        return None
    return TopicPattern(text)


def handle_watch_topic_list(
    client: Client, command: CommandWatchTopicList
) -> Coroutine[Any, Any, None] | None:
    """Watches topics: responds with those that match now, followed by each change.

    The id is registered at once, so that a close after this command finds it.
    """
    namespace = NamespaceName.parse(command.namespace)
    existing = client.watchers.get(command.watcher_id)
    if isinstance(existing, Opening):
        raise ServiceNotReady(f"watcher {command.watcher_id} is already being created on this connection")
    if existing is not None:
        _answer(client, command, existing.watcher)
        return None
    pattern = _pattern(client, command.topics_pattern)
    if pattern is None:
        topics = client.services.config.topics
        raise NotAllowed(
            f"the topics pattern has {pattern_length(command.topics_pattern)} characters, at most "
            f"{topics.pattern_length_max} are allowed (subscriptionPatternMaxLength)"
            if topics.pattern_evaluation
            else "this broker does not evaluate patterns (enableBrokerSideSubscriptionPatternEvaluation)"
        )
    if len(client.watchers) >= WATCHERS_MAX:
        raise TooManyRequests(f"{WATCHERS_MAX} topic list watchers are already open on this connection")
    opening = Opening()
    client.watchers[command.watcher_id] = opening
    return _finish_opening(client, command, namespace, pattern, opening)


async def _finish_opening(
    client: Client,
    command: CommandWatchTopicList,
    namespace: NamespaceName,
    pattern: TopicPattern,
    opening: Opening,
) -> None:
    try:
        watcher = await _open(client, command.watcher_id, namespace, pattern)
    except BaseException as error:
        if client.watchers.get(command.watcher_id) is opening:
            del client.watchers[command.watcher_id]
        if opening.cancelled and isinstance(error, Exception):
            return
        raise
    if opening.cancelled:
        client.services.topic_lists.unwatch(namespace, watcher)
        return
    client.watchers[command.watcher_id] = OpenWatcher(namespace, watcher)
    _answer(client, command, watcher)


async def _open(
    client: Client, watcher_id: int, namespace: NamespaceName, pattern: TopicPattern
) -> TopicListWatcher:
    services = client.services
    checked = await _check_right(client, namespace)
    with services.lookup():
        watcher = await services.topic_lists.watch(namespace, watcher_id, pattern, client.peer)
    if checked != services.authorizer.generation:
        try:
            await _check_right(client, namespace)
        except BaseException:
            services.topic_lists.unwatch(namespace, watcher)
            raise
    return watcher


async def _check_right(client: Client, namespace: NamespaceName) -> int:
    """Check that the client may list the topics; return the generation of the grants that say so.

    Raises Unauthorized, MetadataError.
    """
    authorizer = client.services.authorizer
    while True:
        generation = authorizer.generation
        await authorizer.check_list(client.principal, namespace)
        if generation == authorizer.generation:
            return generation


def _answer(client: Client, command: CommandWatchTopicList, watcher: TopicListWatcher) -> None:
    topics, hash_now = watcher.begin()
    known = command.HasField("topics_hash") and command.topics_hash == hash_now
    client.peer.write(
        commands.watch_topic_list_success(
            command.request_id, command.watcher_id, () if known else topics, hash_now
        )
    )


def handle_watch_topic_list_close(client: Client, command: CommandWatchTopicListClose) -> None:
    """Closes a watcher; closing one that is not open succeeds."""
    existing = client.watchers.pop(command.watcher_id, None)
    if isinstance(existing, Opening):
        existing.cancelled = True
    elif existing is not None:
        client.services.topic_lists.unwatch(existing.namespace, existing.watcher)
    client.peer.write(commands.success(command.request_id))
