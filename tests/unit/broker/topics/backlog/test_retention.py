"""A topic's retention policy reaches its ledgers when it loads and when it changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from magnetar.broker.policies.config import RetentionConfig
from magnetar.broker.topics.backlog.retention import retention_of
from magnetar.ledger.managed_ledger.trimming import Retention

from tests.unit.broker.topics.simulated_broker import SimBroker, config_of, simulated
from tests.unit.ledger.managed_ledger.harness import until

LOOK = "retention"


def test_minutes_and_bytes_become_the_ledgers_limits_and_topics_share_them() -> None:
    async def scenario(broker: SimBroker) -> None:
        policies = (await broker.topic()).policies
        for time_min, size_bytes, expected in (
            (0, 0, Retention(0, 0)),
            (-1, -1, Retention(-1, -1)),
            (3, 1 << 20, Retention(180_000, 1 << 20)),
        ):
            changed = replace(policies, retention_time_min=time_min, retention_size_bytes=size_bytes)
            assert retention_of(changed) == expected
            assert retention_of(changed) is retention_of(replace(changed, message_ttl_s=5))

    simulated(scenario)


def test_what_everybody_acknowledged_is_kept_for_its_time_with_and_without_subscriptions() -> None:
    async def scenario(broker: SimBroker) -> None:
        acked, alone = await broker.topic(), await broker.topic("persistent://public/default/alone")
        subscription = await broker.subscription(acked)
        for topic in (acked, alone):
            await broker.publish(topic, 11)
            await asyncio.sleep(0.1)
            await broker.publish(topic, 1)
        subscription.cursor.ack_cumulative(acked.ledger.last_position)
        await asyncio.sleep(4 * 60)
        await broker.keep_house(LOOK)
        assert acked.storage_entries == alone.storage_entries == 12
        await asyncio.sleep(70)
        await broker.keep_house(LOOK)
        await until(lambda: acked.storage_entries == alone.storage_entries == 1)

    simulated(scenario, config_of(retention=RetentionConfig(time_min=5, size_mb=-1)))


def test_a_change_of_retention_acts_at_once() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, retention_time_min=-1, retention_size_bytes=-1))
        await broker.publish(topic, 11)
        await asyncio.sleep(1)
        assert topic.storage_entries == 11
        topic.apply_policies(replace(topic.policies, retention_time_min=0, retention_size_bytes=0))
        await until(lambda: topic.storage_entries == 0, seconds=1)

    simulated(scenario)


def test_what_expired_is_kept_by_retention_for_readers() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 11)
        await asyncio.sleep(20)
        await broker.keep_house("message expiry")
        await broker.keep_house(LOOK)
        assert (subscription.backlog(), topic.storage_entries) == (0, 11)
        reader, _, _ = await broker.consumer(topic, "reader", durable=False)
        assert reader.backlog() == 11

    simulated(scenario, config_of(retention=RetentionConfig(ttl_s=10, time_min=60, size_mb=-1)))
