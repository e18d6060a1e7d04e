"""Truncation, with clients at work and storage that rolls by itself, on virtual time."""

from __future__ import annotations

import asyncio

from magnetar.broker.admin.routes.topics.storage import truncate
from magnetar.broker.policies.config import RetentionConfig
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.topics.backlog.retention import retention_of
from magnetar.common.errors import LedgerClosed, ServiceNotReady
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.topics.simulated_broker import TOPIC, SimBroker, config_of, simulated

FOR_EVER = config_of(retention=RetentionConfig(time_min=-1, size_mb=-1))


def test_everything_goes_from_every_ledger_and_every_subscription_is_at_the_end() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        unread = await broker.subscription(topic, "unread")
        shared, consumer, peer = await broker.consumer(topic, "shared", SubType.Shared, permits=5)
        reader, _, _ = await broker.consumer(topic, "reader", durable=False)
        await broker.publish(topic, 11, runs=3)
        assert (topic.ledger.entries, len(topic.ledger.spans.spans) > 1) == (33, True)
        assert (peer.messages, shared.unacked_messages) == (5, 5)
        await truncate(topic)
        assert (topic.ledger.entries, topic.storage_bytes) == (0, 0)
        assert [each.backlog() for each in (unread, shared, reader)] == [0, 0, 0]
        assert shared.unacked_messages == 0, "nobody waits for what is gone"
        shared.add_permits(consumer, 5)
        await broker.publish(topic, 2)
        assert [each.backlog() for each in (unread, shared, reader)] == [2, 2, 2]
        await asyncio.sleep(1)
        assert peer.messages == 7

    simulated(scenario, FOR_EVER)


def test_truncation_keeps_later_messages_and_retention_restores_none() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 3)
        truncating = asyncio.create_task(truncate(topic))
        await asyncio.sleep(0)
        for _ in range(20):
            await broker.publish(topic, 1)
        await truncating
        assert topic.ledger.entries == 20
        first = topic.ledger.first_position()
        topic.ledger.retain(retention_of(topic.policies))
        await asyncio.sleep(10)
        assert topic.ledger.first_position() == first
        await truncate(topic)
        await broker.registry.unload(TopicName.parse(TOPIC))
        again = await broker.topic()
        assert (again.ledger.entries, again.subscriptions["s"].backlog()) == (0, 0)

    simulated(scenario, FOR_EVER)


def test_truncation_deletes_at_once_during_publishing() -> None:
    """Also where the last of it shares a ledger with what comes before that ledger is closed."""

    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        for turns in range(20):
            await broker.publish(topic, 3)
            last = topic.ledger.last_confirmed
            ahead = asyncio.create_task(broker.publish(topic, 2))
            for _ in range(turns):
                await asyncio.sleep(0)
            began = asyncio.get_running_loop().time()
            await truncate(topic)
            assert asyncio.get_running_loop().time() - began < 1
            assert topic.ledger.first_position() >= last
            await ahead

    simulated(scenario, FOR_EVER)


def test_a_topic_that_is_closed_meanwhile_is_not_waited_for() -> None:
    async def scenario(broker: SimBroker) -> None:
        refused = 0
        for turns in range(20):
            topic = await broker.topic()
            await broker.publish(topic, 3)
            truncating = asyncio.create_task(truncate(topic))
            for _ in range(turns):
                await asyncio.sleep(0.0001)
            began = asyncio.get_running_loop().time()
            await broker.registry.unload(TopicName.parse(TOPIC))
            [result] = await asyncio.gather(truncating, return_exceptions=True)
            assert asyncio.get_running_loop().time() - began < 1
            assert result is None or isinstance(result, ServiceNotReady | LedgerClosed)
            refused += result is not None
        assert refused

    simulated(scenario, FOR_EVER)


def test_a_topic_without_messages_is_truncated_already() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        for _ in range(2):
            await truncate(topic)
        await broker.publish(topic, 1)
        assert topic.ledger.entries == 1

    simulated(scenario, FOR_EVER)
