"""Newcomers to Key_Shared subscriptions whose hash ranges somebody has, on topics of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import ConsumerAssignFailed, ConsumerBusy
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker

NAMES = ["persistent://public/default/t", "non-persistent://public/default/t"]

Scenario = Callable[[Topic], Awaitable[None]]


@dataclass(eq=False)
class MutePeer(ListeningPeer):
    """Asked for a sign of life it gives none; when it is known to be dead, its consumers are gone."""

    all_asked: asyncio.Barrier = field(default_factory=lambda: asyncio.Barrier(1))
    on_dead: Callable[[], None] = lambda: None
    asked: int = 0

    async def is_alive(self) -> bool:
        self.asked += 1
        await self.all_asked.wait()
        self.connected = False
        self.on_dead()
        return False


def sticky(peer: ListeningPeer, *ranges: tuple[int, int]) -> SubscribeRequest:
    options = ConsumerOptions(1, "c", 0, {}, None, sticky=True, hash_ranges=ranges)
    return SubscribeRequest(
        "s",
        pb.CommandSubscribe.Key_Shared,
        True,
        True,
        None,
        0,
        {},
        options,
        peer,
        sends_entry_metadata=False,
    )


async def join(topic: Topic, peer: ListeningPeer, *ranges: tuple[int, int]) -> Any:
    subscription, consumer = await topic.subscriptions.subscribe(sticky(peer, *ranges))
    if isinstance(peer, MutePeer):
        peer.on_dead = lambda: subscription.remove_consumer(consumer)
    return consumer


def on_topic(name: str, scenario: Scenario) -> None:
    async def run(made: Topics) -> None:
        await asyncio.wait_for(scenario(await made.load(name)), 60)

    in_a_broker(run)


@pytest.mark.parametrize("name", NAMES)
def test_ranges_of_dead_holders_go_to_the_newcomer_and_all_of_them_are_asked_at_once(name: str) -> None:
    async def scenario(topic: Topic) -> None:
        all_asked = asyncio.Barrier(3)
        dead = [MutePeer(all_asked=all_asked) for _ in range(3)]
        bystander = MutePeer()
        for number, peer in enumerate(dead):
            await join(topic, peer, (number * 100, number * 100 + 99))
        await join(topic, bystander, (300, 399))
        newcomer = await join(topic, ListeningPeer(), (50, 299))
        assert newcomer in topic.subscriptions["s"].consumers
        assert len(topic.subscriptions["s"].consumers) == 2
        assert bystander.asked == 0, "it is in nobody's way"

    on_topic(name, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_one_live_holder_is_enough_to_refuse_a_newcomer(name: str) -> None:
    async def scenario(topic: Topic) -> None:
        await join(topic, MutePeer(), (0, 99))
        await join(topic, ListeningPeer(), (100, 199))
        with pytest.raises(ConsumerAssignFailed, match="overlap"):
            await join(topic, ListeningPeer(), (50, 150))
        assert await join(topic, ListeningPeer(), (0, 99)), "the dead one is gone all the same"

    on_topic(name, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_ranges_that_are_none_are_refused_whoever_is_dead(name: str) -> None:
    async def scenario(topic: Topic) -> None:
        holder = MutePeer()
        await join(topic, holder, (0, 99))
        for ranges in ((), ((200, 100),), ((300, 400), (400, 500))):
            with pytest.raises(ConsumerAssignFailed):
                await join(topic, ListeningPeer(), *ranges)
        assert holder.asked == 0

    on_topic(name, scenario)


@pytest.mark.parametrize("name", NAMES)
def test_a_dead_holder_does_not_keep_a_newcomer_from_sharing_keys_in_another_way(name: str) -> None:
    async def scenario(topic: Topic) -> None:
        await join(topic, MutePeer(), (0, 99))
        automatic = ConsumerOptions(2, "automatic", 0, {}, None)
        _, consumer = await topic.subscriptions.subscribe(replace(sticky(ListeningPeer()), options=automatic))
        assert topic.subscriptions["s"].consumers == [consumer]
        with pytest.raises(ConsumerBusy):
            await join(topic, ListeningPeer(), (0, 99))

    on_topic(name, scenario)
