"""Watchers of topic lists are opened only by clients that may list the topics at the end of the opening."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Client
from magnetar.broker.handlers.topic_lists import handle_watch_topic_list
from magnetar.common.errors import Unauthorized
from magnetar.common.wire.pulsar_pb2 import CommandWatchTopicList

from tests.unit.broker.topics.world import ListeningPeer


def test_a_right_that_is_revoked_while_the_watcher_is_opened_keeps_it_out() -> None:
    asked: list[int] = []
    unwatched: list[object] = []

    async def check_list(principal: object, namespace: object) -> None:
        asked.append(authorizer.generation)
        if authorizer.generation:
            raise Unauthorized("not any more")

    async def watch(*_: object) -> str:
        authorizer.generation += 1  # grants change while the topics are read
        return "watcher"

    @contextmanager
    def lookup() -> Iterator[None]:
        yield

    authorizer = SimpleNamespace(generation=0, check_list=check_list)
    services: Any = SimpleNamespace(
        config=BrokerConfig(),
        authorizer=authorizer,
        topic_lists=SimpleNamespace(watch=watch, unwatch=lambda *each: unwatched.append(each[1])),
        lookup=lookup,
    )
    peer = ListeningPeer()
    client = Client(services, peer)
    command = CommandWatchTopicList(
        request_id=1, watcher_id=1, namespace="acme/demo", topics_pattern="persistent://acme/demo/.*"
    )
    opening = handle_watch_topic_list(client, command)
    assert opening is not None
    with pytest.raises(Unauthorized):
        asyncio.run(opening)
    assert asked == [0, 1]
    assert (unwatched, client.watchers, peer.commands) == (["watcher"], {}, [])
