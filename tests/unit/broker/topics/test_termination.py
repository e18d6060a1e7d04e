"""A terminated topic: nothing comes in any more, everything goes out, and consumers hear of the end."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.access_modes import EXCLUSIVE, WAIT_FOR_EXCLUSIVE
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import NotAllowed, ServiceNotReady, TopicTerminated
from magnetar.common.naming.position import Position
from magnetar.common.wire import commands
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.topics.world import (
    ListeningPeer,
    Topics,
    in_a_broker,
    producer_of,
    sends,
    subscribed,
)
from tests.unit.ledger.managed_ledger.harness import until

REACHED_END = "REACHED_END_OF_TOPIC"


async def load(made: Topics) -> PersistentTopic:
    return cast(PersistentTopic, await made.load("orders"))


async def reload(made: Topics, topic: PersistentTopic) -> PersistentTopic:
    await topic.close()
    made.registry._forget(topic)
    return await load(made)


async def published(topic: PersistentTopic, count: int) -> None:
    """By a producer that goes again."""
    peer = ListeningPeer()
    producer = await producer_of(topic, peer, "other")
    topic.publishing.publish(producer, sends(*[b"m"] * count))
    await until(lambda: peer.types.count("SEND_RECEIPT") == count)
    topic.producers.remove(producer)


def errors(peer: ListeningPeer) -> list[tuple[int, str]]:
    return [
        (command.send_error.sequence_id, pb.ServerError.Name(command.send_error.error))
        for command in peer.commands
        if command.type == pb.BaseCommand.SEND_ERROR
    ]


def ack(subscription: Subscription, consumer: Any, topic: PersistentTopic, *entry_ids: int) -> None:
    subscription.ack_many(topic.ledger.last_confirmed.ledger_id, entry_ids, consumer)


def test_what_is_on_its_way_is_confirmed_and_what_comes_later_is_refused() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        topic.publishing.publish(producer, sends(b"0", b"1"))
        terminating = asyncio.create_task(topic.terminate())
        await asyncio.sleep(0)
        topic.publishing.publish(producer, sends(b"2", first=2))
        position = await terminating
        assert position == topic.ledger.last_confirmed
        assert topic.storage_entries == 2
        assert errors(peer) == [(2, "TopicTerminatedError")]
        assert peer.types.count("SEND_RECEIPT") == 2
        assert peer.types[-1] == "CLOSE_PRODUCER"
        assert not topic.producers
        assert await topic.terminate() == position, "again: the same"

    in_a_broker(scenario)


def test_a_terminated_topic_takes_no_producers_not_even_after_a_restart() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        await published(topic, 3)
        position = await topic.terminate()
        topic.apply_policies(topic.policies)
        for _ in range(2):
            with pytest.raises(TopicTerminated):
                await producer_of(topic, ListeningPeer())
            assert topic.producers.access is None
            topic = await reload(made, topic)
        assert await topic.terminate() == position

    in_a_broker(scenario)


def test_those_who_wait_for_the_topic_are_sent_away() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        await topic.add_producer(Producer(1, "a", 0, ListeningPeer(), {}, b"", 0, access_mode=EXCLUSIVE))
        second = Producer(2, "b", 0, ListeningPeer(), {}, b"", 0, access_mode=WAIT_FOR_EXCLUSIVE)
        waiting = asyncio.create_task(topic.add_producer(second))
        await until(lambda: topic.producers.waiting == 1)
        await topic.terminate()
        with pytest.raises(ServiceNotReady):
            await waiting
        with pytest.raises(TopicTerminated):
            await topic.add_producer(second)

    in_a_broker(scenario)


def test_consumers_hear_of_the_end_once_everything_is_acknowledged() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        first, second, done = ListeningPeer(), ListeningPeer(), ListeningPeer()
        subscription, consumer = await subscribed(topic, first, "slow")
        await subscribed(topic, second, "slow")
        ready, ready_consumer = await subscribed(topic, done, "done")
        await published(topic, 4)
        ack(ready, ready_consumer, topic, 0, 1, 2, 3)
        await topic.terminate()
        assert done.types.count(REACHED_END) == 1, "at once: nothing is left"
        subscription.add_permits(consumer, 10)
        await until(lambda: first.types.count("MESSAGE") == 4)
        ack(subscription, consumer, topic, 0, 1, 3)
        await asyncio.sleep(1)
        assert REACHED_END not in first.types + second.types, "delivered is not enough"
        ack(subscription, consumer, topic, 2)
        await until(lambda: REACHED_END in first.types)
        ack(subscription, consumer, topic, 2)
        await asyncio.sleep(1)
        assert (first.types.count(REACHED_END), second.types.count(REACHED_END)) == (1, 1)

    in_a_broker(scenario)


def test_the_end_is_told_behind_the_answer_to_the_last_acknowledgement() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        subscription, consumer = await subscribed(topic, peer)
        await published(topic, 1)
        await topic.terminate()
        ack(subscription, consumer, topic, 0)
        subscription.when_persisted(lambda _error: peer.write(commands.ack_response(1, 7)))
        await until(lambda: REACHED_END in peer.types)
        assert peer.types == ["ACK_RESPONSE", REACHED_END], "a client that knows no end closes the connection"

    in_a_broker(scenario)


def test_a_consumer_that_comes_to_the_end_hears_it_at_once_and_a_late_one_drains_the_topic() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        await topic.subscriptions.create("late")
        await topic.subscriptions.create("skipped")
        await published(topic, 2)
        await topic.terminate()
        for _ in range(2):
            late = ListeningPeer()
            subscription, consumer = await subscribed(topic, late, "late")
            subscription.add_permits(consumer, 10)
            await until(lambda: late.types.count("MESSAGE") == 2)  # noqa: B023
            assert REACHED_END not in late.types
            topic.remove_consumer(subscription, consumer)
            topic = await reload(made, topic)
        late = ListeningPeer()
        subscription, consumer = await subscribed(topic, late, "late")
        subscription.ack_cumulative(topic.ledger.last_confirmed, consumer)
        await until(lambda: late.types == [REACHED_END])
        again = ListeningPeer()
        await subscribed(topic, again, "late")
        await asyncio.sleep(0)
        assert again.types == [REACHED_END]
        skipping = ListeningPeer()
        subscription, _ = await subscribed(topic, skipping, "skipped")
        subscription.skip_to(topic.ledger.last_confirmed)
        assert skipping.types == [REACHED_END], "what expired counts as acknowledged"

    in_a_broker(scenario)


def test_an_empty_topic_ends_at_once() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        await subscribed(topic, peer)
        assert await topic.terminate() == Position(-1, -1)
        assert peer.types == [REACHED_END]
        await reload(made, topic)

    in_a_broker(scenario)


def test_a_non_persistent_topic_has_no_end() -> None:
    async def scenario(made: Topics) -> None:
        topic = await made.load("non-persistent://public/default/orders")
        with pytest.raises(NotAllowed):
            await topic.terminate()

    in_a_broker(scenario)
