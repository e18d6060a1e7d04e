"""Non-persistent topics, where clients come and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from magnetar.broker.admin.stats.subscription_stats import Wanted
from magnetar.broker.admin.stats.topic_stats import topic_stats
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import resolve
from magnetar.broker.subscriptions.consumers.consumer import ConsumerOptions
from magnetar.broker.topics.non_persistent_topic import NonPersistentTopic
from magnetar.broker.topics.publish.in_process_limit import InProcess
from magnetar.broker.topics.subscribe.subscribe_request import SubscribeRequest
from magnetar.common.errors import ServiceNotReady, SubscriptionNotFound, UnsubscribeRefused
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import SendRun
from magnetar.common.wire.varint import encode_varint

from tests.unit.broker.topics.fakes import FakeClock
from tests.unit.broker.topics.world import ListeningPeer, producer_of, sends


@dataclass(eq=False)
class DyingPeer(ListeningPeer):
    """Dead when it is asked for a sign of life, which takes a while."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    dies: asyncio.Event = field(default_factory=asyncio.Event)

    async def is_alive(self) -> bool:
        self.asked.set()
        await self.dies.wait()
        self.connected = False
        return False


def request(peer: ListeningPeer, *, durable: bool = True) -> SubscribeRequest:
    return SubscribeRequest(
        subscription="s",
        type=pb.CommandSubscribe.Exclusive if durable else pb.CommandSubscribe.Shared,
        durable=durable,
        from_earliest=False,
        start=None,
        rollback_s=0,
        properties={},
        options=ConsumerOptions(consumer_id=1, name="c", priority_level=0, properties={}, epoch=None),
        peer=peer,
        sends_entry_metadata=False,
    )


def opened(in_process: int = 1_000) -> NonPersistentTopic:
    config = BrokerConfig()
    return NonPersistentTopic(
        TopicName.parse("non-persistent://public/default/t"),
        resolve(config, Policies(), Policies()),
        config.dispatch,
        FakeClock(),
        InProcess(in_process),
    )


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_durable_subscription_outlives_its_last_consumer(durable: bool) -> None:
    async def scenario() -> None:
        topic = opened()
        came = [await topic.subscriptions.subscribe(request(ListeningPeer(), durable=durable))]
        if not durable:
            came.append(await topic.subscriptions.subscribe(request(ListeningPeer(), durable=False)))
        for subscription, consumer in came:
            assert list(topic.subscriptions) == ["s"]
            topic.remove_consumer(subscription, consumer)
        assert list(topic.subscriptions) == (["s"] if durable else [])

    asyncio.run(scenario())


def test_nobody_subscribes_to_a_topic_that_closed_while_a_holder_was_probed() -> None:
    async def scenario() -> None:
        topic, holder = opened(), DyingPeer()
        await topic.subscriptions.subscribe(request(holder))
        newcomer = asyncio.create_task(topic.subscriptions.subscribe(request(ListeningPeer())))
        await holder.asked.wait()
        await topic.close()
        holder.dies.set()
        with pytest.raises(ServiceNotReady):
            await newcomer
        assert not topic.has_clients

    asyncio.run(scenario())


def test_who_takes_a_dead_holders_place_is_in_a_subscription_that_exists() -> None:
    async def scenario() -> None:
        topic, holder = opened(), DyingPeer()
        subscription, consumer = await topic.subscriptions.subscribe(request(holder))
        newcomer = asyncio.create_task(topic.subscriptions.subscribe(request(ListeningPeer())))
        await holder.asked.wait()
        topic.remove_consumer(subscription, consumer)
        assert await topic.subscriptions.delete_unused(subscription)
        holder.dies.set()
        found, _ = await newcomer
        assert topic.subscriptions["s"] is found

    asyncio.run(scenario())


def test_one_of_several_consumers_unsubscribes_only_by_force() -> None:
    async def scenario() -> None:
        topic = opened()
        peers = [ListeningPeer(), ListeningPeer()]
        requests = [replace(request(peer), type=pb.CommandSubscribe.Shared) for peer in peers]
        subscription, first = await topic.subscriptions.subscribe(requests[0])
        _, second = await topic.subscriptions.subscribe(requests[1])
        with pytest.raises(UnsubscribeRefused):
            await topic.subscriptions.unsubscribe(subscription, first, force=False)
        assert subscription.consumers == [first, second]
        topic.remove_consumer(subscription, second)
        await topic.subscriptions.unsubscribe(subscription, first, force=False)
        assert not topic.subscriptions
        with pytest.raises(SubscriptionNotFound):
            await topic.subscriptions.unsubscribe(subscription, first, force=False)
        subscription, first = await topic.subscriptions.subscribe(requests[0])
        await topic.subscriptions.subscribe(requests[1])
        await topic.subscriptions.unsubscribe(subscription, first, force=True)
        assert not topic.subscriptions
        assert peers[1].types[-1] == "CLOSE_CONSUMER"

    asyncio.run(scenario())


def test_what_is_dropped_is_in_the_statistics() -> None:
    async def scenario() -> None:
        topic, peer = opened(in_process=6), ListeningPeer()
        subscription, consumer = await topic.subscriptions.subscribe(request(ListeningPeer()))
        subscription.add_permits(consumer, 4)
        for name in ("a", "b"):
            await producer_of(topic, peer, name)
        entries = [b"entry"] * 9
        ids = [encode_varint(number) for number in range(9)]
        topic.publishing.publish(topic.producers["a"], SendRun(1, entries, ids, None, None, False, False, 45))
        topic.stats.sample(2)
        subscription.stats.sample(2)
        shown = topic_stats(topic, Wanted(), "broker")
        assert shown["msgDropRate"] == 1.5, "3 of 9 in 2 s were too many in process"
        assert {each["producerName"]: each["msgDropRate"] for each in shown["publishers"]} == {
            "a": 1.5,
            "b": 0.0,
        }
        assert shown["subscriptions"]["s"]["msgDropRate"] == 1.0, "2 of 6 in 2 s had no permits"
        assert (shown["msgInCounter"], shown["msgOutCounter"]) == (6, 4)

    asyncio.run(scenario())


def test_rates_of_subscribing_and_dispatch_are_those_of_topics_that_are_stored() -> None:
    async def scenario() -> None:
        topic, peer = opened(), ListeningPeer()
        none = Policies.Rate(messages=1, period_s=3600)
        policies = Policies(dispatch_rate=none, subscription_dispatch_rate=none)
        policies.subscribe_rate.per_consumer = 1
        topic.apply_policies(resolve(BrokerConfig(), policies, Policies()))
        for _ in range(3):
            subscription, consumer = await topic.subscriptions.subscribe(request(peer))
            topic.remove_consumer(subscription, consumer)
        subscription, consumer = await topic.subscriptions.subscribe(request(peer))
        subscription.add_permits(consumer, 10)
        producer = await producer_of(topic, ListeningPeer())
        topic.publishing.publish(producer, sends(b"a", b"b", b"c"))
        assert peer.types.count("MESSAGE") == 3

    asyncio.run(scenario())
