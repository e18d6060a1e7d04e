"""What a producer needs permission for is asked before anything is made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.handlers import producers
from magnetar.broker.handlers.client import Client
from magnetar.broker.peer import Peer
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.common.errors import NotAllowed, TopicNotFound, Unauthorized
from magnetar.common.wire.producer_options import NOT_DEDUPLICATED
from magnetar.common.wire.pulsar_pb2 import CommandProducer

from tests.unit.broker.topics.fakes import FakePeer

POLICIES = SimpleNamespace(schemas=DEFAULT_RULES)


class AskedAuthorizer:
    """Allows everything and notes what it was asked."""

    def __init__(self) -> None:
        self.generation = 0
        self.asked: list[str] = []

    async def check_produce(self, principal: object, topic: object) -> None:
        self.asked.append("produce")

    async def check_consume(self, principal: object, topic: object, subscription: str) -> None:
        self.asked.append(f"consume by {subscription}")


@pytest.mark.parametrize(("initial", "actions"), [("", ["produce"]), ("s", ["produce", "consume by s"])])
def test_an_initial_subscription_is_for_those_who_may_consume(initial: str, actions: list[str]) -> None:
    authorizer = AskedAuthorizer()

    async def get(name: object, *, create: bool) -> None:
        raise TopicNotFound("stop here")

    services: Any = SimpleNamespace(topics=SimpleNamespace(get=get), authorizer=authorizer)
    client = Client(services, cast(Peer, FakePeer()))
    command = CommandProducer(topic="t", producer_id=1, request_id=1, initial_subscription_name=initial)
    opening = producers.handle_producer(client, command)
    assert opening is not None
    with pytest.raises(TopicNotFound):
        asyncio.run(cast(Any, opening))
    assert authorizer.asked == actions


@pytest.mark.parametrize(
    ("deduplicates", "asked", "refused"),
    [(False, "required", True), (True, "required", False), (False, "", False), (False, "other", False)],
)
def test_a_producer_that_asks_for_deduplication_is_refused_where_there_is_none(
    deduplicates: bool, asked: str, refused: bool
) -> None:
    class Added(Exception):
        pass

    async def add_producer(*_: object) -> None:
        raise Added

    async def get(name: object, *, create: bool) -> Any:
        return SimpleNamespace(
            publishing=SimpleNamespace(deduplicates=deduplicates),
            producers=SimpleNamespace(remove=lambda _: None),
            add_producer=add_producer,
            policies=POLICIES,
        )

    services: Any = SimpleNamespace(
        topics=SimpleNamespace(get=get),
        clock=SimpleNamespace(wall_ms=lambda: 0),
        authorizer=AskedAuthorizer(),
        schemas=None,
    )
    client = Client(services, cast(Peer, FakePeer()))
    command = CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="p")
    if asked:
        command.metadata.add(key="magnetar.deduplication", value=asked)
    opening = producers.handle_producer(client, command)
    assert opening is not None
    with pytest.raises(NotAllowed if refused else Added) as raised:
        asyncio.run(cast(Any, opening))
    if refused:
        assert NOT_DEDUPLICATED in str(raised.value)
    assert 1 not in client.producers


def test_a_right_that_is_revoked_while_the_producer_is_opened_keeps_it_out() -> None:
    class Revoking(AskedAuthorizer):
        async def check_produce(self, principal: object, topic: object) -> None:
            await super().check_produce(principal, topic)
            if self.generation:
                raise Unauthorized("not any more")

    authorizer, removed = Revoking(), list[object]()

    async def add_producer(*_: object) -> None:
        authorizer.generation += 1  # grants change while the topic is loaded

    async def get(name: object, *, create: bool) -> Any:
        producers = SimpleNamespace(remove=removed.append)
        return SimpleNamespace(producers=producers, add_producer=add_producer, policies=POLICIES)

    services: Any = SimpleNamespace(
        topics=SimpleNamespace(get=get),
        clock=SimpleNamespace(wall_ms=lambda: 0),
        authorizer=authorizer,
        schemas=None,
    )
    client = Client(services, cast(Peer, FakePeer()))
    opening = producers.handle_producer(client, CommandProducer(topic="t", producer_id=1, producer_name="p"))
    assert opening is not None
    with pytest.raises(Unauthorized):
        asyncio.run(cast(Any, opening))
    assert authorizer.asked == ["produce", "produce"]
    assert len(removed) == 1
    assert client.producers == {}
