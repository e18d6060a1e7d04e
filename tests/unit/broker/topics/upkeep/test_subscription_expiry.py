"""Durable subscriptions without consumers are deleted after the time that a policy gives them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.unit.broker.topics.simulated_broker import SimBroker, counted, simulated

LOOK = "subscription expiry"


def test_a_subscription_expires_when_it_had_no_consumer_for_its_time() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, subscription_expiration_min=10))
        await broker.subscription(topic, "unused")
        used, consumer, _ = await broker.consumer(topic, "used")
        await broker.consumer(topic, "reader", durable=False)
        await broker.publish(topic, 3)
        await broker.keep_house(LOOK)
        await asyncio.sleep(599)
        await broker.keep_house(LOOK)
        assert set(topic.subscriptions) == {"unused", "used", "reader"}
        before = counted("magnetar_subscriptions_expired_total")
        await asyncio.sleep(2)
        await broker.keep_house(LOOK)
        assert counted("magnetar_subscriptions_expired_total") == before + 1
        assert set(topic.subscriptions) == {"used", "reader"}
        assert set(topic.ledger.cursors) == {"used", "reader"}
        topic.remove_consumer(used, consumer)
        await broker.keep_house(LOOK)
        await asyncio.sleep(590)
        _, consumer, _ = await broker.consumer(topic, "used")
        topic.remove_consumer(used, consumer)
        await asyncio.sleep(20)
        await broker.keep_house(LOOK)
        assert "used" in topic.subscriptions, "somebody was there in between"
        await asyncio.sleep(601)
        await broker.keep_house(LOOK)
        assert "used" not in topic.subscriptions

    simulated(scenario)


def test_without_a_policy_none_expires() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        for _ in range(3):
            await broker.keep_house(LOOK)
            await asyncio.sleep(20_000)
        assert topic.subscriptions
        assert subscription.idle_since is None, "nothing is kept where nothing expires"

    simulated(scenario)


def test_a_subscription_that_has_a_consumer_by_now_is_not_deleted() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        subscribing = asyncio.create_task(broker.consumer(topic))
        await asyncio.sleep(0)
        assert not await topic.subscriptions.delete_unused(subscription)
        _, consumer, _ = await subscribing
        assert topic.subscriptions["s"].consumers == [consumer]

    simulated(scenario)


def test_a_subscription_that_was_used_while_others_were_deleted_stays() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, subscription_expiration_min=10))
        await broker.subscription(topic, "first")
        await broker.subscription(topic, "second")
        await broker.keep_house(LOOK)
        await asyncio.sleep(601)
        look = asyncio.create_task(broker.keep_house(LOOK))
        await asyncio.sleep(0)
        used, consumer, _ = await broker.consumer(topic, "second")
        topic.remove_consumer(used, consumer)
        await look
        assert set(topic.subscriptions) == {"second"}

    simulated(scenario)
