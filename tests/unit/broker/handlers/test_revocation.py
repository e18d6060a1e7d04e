"""Producers and consumers that lost their right are closed under their client; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.handlers.client import Client, OpenConsumer, Opening, OpenProducer, OpenWatcher
from magnetar.broker.handlers.revocation import Revocation
from magnetar.common.errors import MetadataError
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.rights_cache import Scope
from magnetar.common.security.principal import Principal

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, subscribed
from tests.unit.ledger.managed_ledger.harness import until

ORDERS = TopicName.parse("orders")


class Rights:
    """Rights as a test sets them."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[str] = []
        self.away = 0

    async def may_produce(self, principal: Principal | None, topic: TopicName) -> bool:
        return await self._may("produce", principal, topic.local_name)

    async def may_consume(self, principal: Principal | None, topic: TopicName, subscription: str) -> bool:
        return await self._may(f"consume {subscription}", principal, topic.local_name)

    async def may_list(self, principal: Principal | None, namespace: NamespaceName) -> bool:
        return await self._may("list", principal, str(namespace))

    async def _may(self, action: str, principal: Principal | None, name: str) -> bool:
        await asyncio.sleep(0)
        if self.away:
            self.away -= 1
            raise MetadataError("metadata is away")
        assert principal is not None
        self.asked.append(f"{principal.role} {action} {name}")
        return f"{principal.role} {action}" not in self.refused


async def connected(made: Topics, role: str, topic: str) -> tuple[Client, ListeningPeer]:
    """A client with a producer and a consumer of subscription `role` on a topic."""
    peer = ListeningPeer()
    services: Any = SimpleNamespace(topic_lists=made.lists)
    client = Client(services, peer, principal=Principal(role))
    loaded = await made.load(topic)
    producer = await producer_of(loaded, peer, name=role)
    client.producers[1] = OpenProducer(loaded, producer)
    producer.on_detached = lambda code: client.forget_producer(1)
    subscription, consumer = await subscribed(loaded, peer, role)
    client.consumers[1] = OpenConsumer(loaded, subscription, consumer)
    consumer.on_detached = lambda code: client.consumers.pop(1, None)
    return client, peer


def in_revocation(
    body: Callable[[Topics, Rights, Revocation, list[Client]], Awaitable[None]],
) -> None:
    async def scenario(made: Topics) -> None:
        rights, clients = Rights(), list[Client]()
        revocation = Revocation(cast(Any, rights), lambda: clients, made.tasks.spawn)
        await body(made, rights, revocation, clients)

    in_a_broker(scenario)


def test_what_lost_its_right_is_closed_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        alice, alices = await connected(made, "alice", "orders")
        bob, bobs = await connected(made, "bob", "orders")
        clients += [alice, bob]
        rights.refused = {"alice produce", "bob consume bob"}
        revocation.rights_changed(ORDERS.namespace)
        await until(lambda: bool(alices.types and bobs.types))
        assert (alices.types, bobs.types) == (["CLOSE_PRODUCER"], ["CLOSE_CONSUMER"])
        assert (list(alice.producers), list(alice.consumers)) == ([], [1])
        assert (list(bob.producers), list(bob.consumers)) == ([1], [])
        topic = await made.load("orders")
        assert list(topic.producers) == ["bob"]
        assert [len(each.consumers) for each in topic.subscriptions.values()] == [1, 0]

    in_revocation(body)


@pytest.mark.parametrize(
    ("scope", "looked_at"),
    [
        (None, "orders other"),
        ("public", "orders other"),
        ("acme", ""),
        (ORDERS.namespace, "orders other"),
        (NamespaceName("public", "else"), ""),
        (ORDERS, "orders"),
    ],
)
def test_only_what_a_change_concerns_is_looked_at(scope: Scope, looked_at: str) -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        clients.append((await connected(made, "alice", "orders"))[0])
        clients.append((await connected(made, "bob", "other"))[0])
        revocation.rights_changed(scope)
        await until(lambda: not revocation._running)
        assert {asked.split()[-1] for asked in rights.asked} == set(looked_at.split())

    in_revocation(body)


def test_a_partition_goes_with_its_topic() -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        client, peer = await connected(made, "alice", "orders-partition-0")
        clients.append(client)
        rights.refused = {"alice produce", "alice consume alice"}
        revocation.rights_changed(ORDERS)
        await until(lambda: len(peer.types) == 2)
        assert sorted(peer.types) == ["CLOSE_CONSUMER", "CLOSE_PRODUCER"]

    in_revocation(body)


def test_grants_that_cannot_be_read_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        client, peer = await connected(made, "alice", "orders")
        clients.append(client)
        rights.away = 2
        rights.refused = {"alice produce"}
        revocation.rights_changed(None)
        await until(lambda: peer.types == ["CLOSE_PRODUCER"])

    in_revocation(body)


def test_a_change_during_a_look_is_looked_at_after_it() -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        client, peer = await connected(made, "alice", "orders")
        clients.append(client)
        revocation.rights_changed(ORDERS)
        await until(lambda: bool(rights.asked))
        rights.refused = {"alice produce"}
        revocation.rights_changed(ORDERS)
        await until(lambda: peer.types == ["CLOSE_PRODUCER"])

    in_revocation(body)


def test_watchers_hear_no_more_and_openings_are_left_to_their_own_check() -> None:
    async def body(made: Topics, rights: Rights, revocation: Revocation, clients: list[Client]) -> None:
        unwatched: list[object] = []
        services: Any = SimpleNamespace(
            topic_lists=SimpleNamespace(unwatch=lambda *each: unwatched.append(each))
        )
        client = Client(services, ListeningPeer(), principal=Principal("alice"))
        watcher = cast(Any, object())
        client.watchers[7] = OpenWatcher(ORDERS.namespace, watcher)
        opening = client.watchers[8] = Opening()
        client.producers[1] = client.consumers[1] = Opening()
        clients.append(client)
        rights.refused = {"alice list"}
        revocation.rights_changed(None)
        await until(lambda: bool(unwatched))
        assert unwatched == [(ORDERS.namespace, watcher)]
        assert client.watchers == {8: opening}

    in_revocation(body)
