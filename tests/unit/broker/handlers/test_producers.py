"""What a producer needs permission for is asked before anything is made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.handlers import producers
from magnetar.broker.handlers.client import Client
from magnetar.broker.peer import Peer
from magnetar.common.errors import TopicNotFound
from magnetar.common.wire.pulsar_pb2 import CommandProducer

from tests.unit.broker.topics.fakes import FakePeer


@pytest.mark.parametrize(("initial", "actions"), [("", ["produce"]), ("s", ["produce", "consume"])])
def test_an_initial_subscription_is_for_those_who_may_consume(
    monkeypatch: pytest.MonkeyPatch, initial: str, actions: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(producers, "authorize", lambda principal, action, resource: asked.append(action))

    async def get(name: object, *, create: bool) -> None:
        raise TopicNotFound("stop here")

    services: Any = SimpleNamespace(topics=SimpleNamespace(get=get))
    client = Client(services, cast(Peer, FakePeer()))
    command = CommandProducer(topic="t", producer_id=1, request_id=1, initial_subscription_name=initial)
    opening = producers.handle_producer(client, command)
    assert opening is not None
    with pytest.raises(TopicNotFound):
        asyncio.run(cast(Any, opening))
    assert asked == actions
