"""Keeps a consumer of a pattern up to date: told by the broker where it can, and by asking where not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from magnetar.client.back_off import BackOff
from magnetar.client.connection.connection import Connection
from magnetar.client.errors import ClientError, Refused
from magnetar.client.lookup import TopicPattern
from magnetar.client.session import ClientParts
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicUpdate,
)

_log = logging.getLogger(__name__)

UPDATES_MAX: Final = 1_000
"""Updates of a broker that wait; with more the whole list is asked for."""


class TopicListWatcher:
    """Watches the topics of one pattern until its task is canceled."""

    def __init__(
        self,
        parts: ClientParts,
        pattern: TopicPattern,
        every_s: float,
        add: Callable[[list[str]], Awaitable[None]],
        remove: Callable[[list[str]], Awaitable[None]],
    ) -> None:
        """`add` and `remove` open and close topics; `every_s` is the time between questions to a broker that
        does not tell.
        """
        self._parts = parts
        self._pattern = pattern
        self._every_s = every_s
        self._add = add
        self._remove = remove
        self._id = parts.next_id()
        self._updates: list[CommandWatchTopicUpdate] = []
        self._news = asyncio.Event()
        self._lost = False

    def on_topics(self, update: CommandWatchTopicUpdate) -> None:
        if len(self._updates) >= UPDATES_MAX:
            self._lost = True
        else:
            self._updates.append(update)
        self._news.set()

    def on_closed(self, reason: ClientError, assigned_url: str) -> None:
        self._lost = True
        self._news.set()

    async def run(self) -> None:
        """Adds topics as they appear and removes those that are deleted."""
        pauses = BackOff()
        while True:
            try:
                if not await self._is_told():
                    await asyncio.sleep(self._every_s)
                await self._add(await self._parts.lookup.topics_matching(self._pattern))
                pauses.reset()
            except ClientError as error:
                _log.info("%s: cannot watch for topics: %s", self._pattern.broker_expression, error)
                await asyncio.sleep(pauses.next_s())

    async def _is_told(self) -> bool:
        """Takes a broker's updates until the connection ends. Returns False at once where it sends none: it
        has no watchers, or refuses this one, as for a pattern that is too long. Raises ConnectionLost.
        """
        try:
            # A service behind the service URL may only answer lookups; the one that it names is a broker.
            connection = await self._parts.lookup.connection_of(self._pattern.watched_at)
            if not connection.feature_flags.supports_topic_watchers:
                return False
            await self._follow(connection)
        except Refused as error:
            if error.may_pass:
                raise
            _log.info(
                "%s: looking for topics every %g s, since brokers do not tell: %s",
                self._pattern.broker_expression,
                self._every_s,
                error,
            )
            return False
        return True

    async def _follow(self, connection: Connection) -> None:
        """Takes a broker's updates until the connection ends. Raises Refused, ConnectionLost."""
        self._updates.clear()
        self._lost = False
        connection.watchers[self._id] = self
        try:
            request = CommandWatchTopicList(
                request_id=0,
                watcher_id=self._id,
                namespace=self._pattern.namespace,
                topics_pattern=self._pattern.broker_expression,
            )
            answer = await connection.request(
                BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request),
                self._pattern.namespace,
                self._parts.options.operation_timeout_s,
            )
            await self._add(self._matching(answer.watchTopicListSuccess.topic))
            while not self._lost:
                await self._news.wait()
                self._news.clear()
                updates, self._updates = self._updates, []
                for update in updates:
                    await self._remove(self._matching(update.deleted_topics))
                    await self._add(self._matching(update.new_topics))
        finally:
            if connection.watchers.pop(self._id, None) is not None:
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        close = CommandWatchTopicListClose(request_id=0, watcher_id=self._id)
        whole = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close)
        connection.write(encode_command(whole))

    def _matching(self, topics: Iterable[str]) -> list[str]:
        names = (TopicName.parse(text) for text in topics)
        return sorted(name.full for name in names if self._pattern.matches(name))
