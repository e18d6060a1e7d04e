"""A broker that stood still for longer than its session delivers nothing of what arrives when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.tenure import Lease
from magnetar.broker.topics.persistent_topic import PersistentTopic

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends, subscribed

TTL_S = 10.0
ENTRIES = 5


@dataclass
class FakeSession:
    alive_until_s: float


@dataclass
class Served:
    """A topic with a consumer that has `ENTRIES` entries, of which it has acknowledged none."""

    made: Topics
    session: FakeSession
    lease: Lease
    topic: PersistentTopic
    subscription: Subscription
    consumer: Consumer
    peer: ListeningPeer

    @property
    def delivered(self) -> int:
        return self.peer.types.count("MESSAGE")

    def look(self) -> None:
        """As once a second."""
        self.lease.look()
        self.topic.prove_ownership()

    def stand_still(self, seconds: float) -> None:
        """Nothing runs meanwhile: what arrives lies there when it goes on."""
        self.made.process.loop._now += seconds


async def turns() -> None:
    """All that runs without waiting for anything."""
    for _ in range(20):
        await asyncio.sleep(0)


def served(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Served], Awaitable[None]]) -> None:
    async def run(made: Topics) -> None:
        loop = asyncio.get_running_loop()
        session, lease = FakeSession(loop.time() + TTL_S), Lease(made.process.clock)
        lease.begin(cast(Any, session))
        monkeypatch.setattr(SoleOwnership, "lease", lease)
        topic = await made.load("persistent://public/default/t")
        assert isinstance(topic, PersistentTopic)
        peer = ListeningPeer()
        subscription, consumer = await subscribed(topic, peer)
        topic.publishing.publish(await producer_of(topic, ListeningPeer()), sends(*[b"entry"] * ENTRIES))
        await asyncio.sleep(0.5)
        session.alive_until_s = loop.time() + TTL_S
        await scenario(Served(made, session, lease, topic, subscription, consumer, peer))

    in_a_broker(run)


def permits(served: Served) -> None:
    served.subscription.add_permits(served.consumer, 100)


def redelivery(served: Served) -> None:
    served.subscription.redeliver(served.consumer, None, None)


def room(served: Served) -> None:
    served.subscription.wake()


@pytest.mark.parametrize("arrives", [permits, redelivery, room])
def test_what_arrived_meanwhile_has_nothing_delivered(
    monkeypatch: pytest.MonkeyPatch, arrives: Callable[[Served], None]
) -> None:
    async def scenario(served: Served) -> None:
        if arrives is not permits:
            permits(served)
            await turns()
        before = served.delivered
        served.stand_still(TTL_S)
        arrives(served)
        await turns()
        assert served.delivered == before

    served(monkeypatch, scenario)


def test_who_stood_still_for_less_than_its_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Served) -> None:
        served.stand_still(TTL_S - 0.1)
        permits(served)
        await turns()
        assert served.delivered == ENTRIES

    served(monkeypatch, scenario)


def test_it_goes_on_once_its_ledger_has_said_that_the_topic_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(served: Served) -> None:
        served.stand_still(TTL_S)
        permits(served)
        await turns()
        served.look()
        await asyncio.sleep(0.5)
        assert served.delivered == ENTRIES
        assert served.peer.connected

    served(monkeypatch, scenario)


def test_another_owner_ends_it_without_a_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Served) -> None:
        topic = served.topic
        served.stand_still(TTL_S)
        other = await served.made.registry._load_persistent(topic.name, topic.policies, create=False)
        permits(served)
        served.look()
        await asyncio.sleep(0.5)
        assert served.delivered == 0
        assert not served.peer.connected
        await other.close()

    served(monkeypatch, scenario)
