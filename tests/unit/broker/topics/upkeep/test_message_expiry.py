"""Time to live: what nobody acknowledged in time counts as acknowledged, by the broker's publish time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import crc32c
import pytest
from magnetar.broker.policies.config import RetentionConfig
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.topics.backlog.backlog import Backlog
from magnetar.common.errors import EntryUnreadable
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.topics.simulated_broker import SimBroker, config_of, simulated
from tests.unit.ledger.managed_ledger.harness import until

TTL_10_S = config_of(retention=RetentionConfig(ttl_s=10))
LOOK = "message expiry"


def test_every_subscription_skips_to_the_first_entry_that_is_young_enough() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        idle = await broker.subscription(topic, "idle")
        busy, _, _ = await broker.consumer(topic, "busy", permits=3)
        reader, _, _ = await broker.consumer(topic, "reader", durable=False)
        await broker.publish(topic, 7)
        await asyncio.sleep(6)
        await broker.publish(topic, 5)
        await broker.keep_house(LOOK)
        assert idle.backlog() == busy.backlog() == reader.backlog() == 12, "all of it is younger than 10 s"
        await asyncio.sleep(5)
        await broker.keep_house(LOOK)
        assert idle.backlog() == busy.backlog() == reader.backlog() == 5
        assert idle.stats.messages_expired == busy.stats.messages_expired == 7
        assert 0 < idle.stats.expired_at_ms <= broker.clock.wall_ms()
        idle.stats.sample(7.0)
        assert idle.stats.expired_rate == 1.0
        await asyncio.sleep(20)
        await broker.keep_house(LOOK)
        assert idle.backlog() == 0
        assert idle.stats.messages_expired == 12

    simulated(scenario, TTL_10_S)


def test_what_expired_is_no_longer_held_by_a_consumer_and_blocks_nobody() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, max_unacked_per_consumer=4))
        subscription, consumer, peer = await broker.consumer(topic, sub_type=SubType.Shared, permits=100)
        await broker.publish(topic, 4)
        await until(lambda: peer.messages == 4)
        assert consumer.blocked_on_unacked
        await asyncio.sleep(11)
        await broker.publish(topic, 3)
        await broker.keep_house(LOOK)
        await until(lambda: peer.messages == 7)
        assert subscription.unacked_messages == subscription.backlog() == 3

    simulated(scenario, TTL_10_S)


def test_the_oldest_entry_expires_as_well_while_no_copy_of_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic, "s")
        await broker.publish(topic, 3)
        await asyncio.sleep(11)
        await broker.publish(topic, 2)

        async def unreadable(*_: object) -> None:
            raise EntryUnreadable("no copy of it can be read now")

        monkeypatch.setattr(Backlog, "publish_time_after", unreadable)
        await broker.keep_house(LOOK)
        assert subscription.backlog() == 2

    simulated(scenario, TTL_10_S)


def test_entries_that_expired_unread_are_never_delivered() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic, "s")
        await broker.publish(topic, 8)
        await asyncio.sleep(11)
        await broker.publish(topic, 2)
        await broker.keep_house(LOOK)
        _, _, peer = await broker.consumer(topic, "s", permits=100)
        await asyncio.sleep(1)
        assert peer.messages == 2

    simulated(scenario, TTL_10_S)


def test_what_expired_goes_with_its_ledger() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic, "s")
        await broker.publish(topic, 11, runs=3)
        await asyncio.sleep(11)
        await broker.publish(topic, 1)
        await broker.keep_house(LOOK)
        await until(lambda: topic.storage_entries <= 11)

    simulated(scenario, TTL_10_S)


def test_without_a_time_to_live_nothing_expires_and_a_new_one_holds_at_the_next_look() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic, "s")
        await broker.publish(topic, 3)
        await asyncio.sleep(1_000)
        await broker.keep_house(LOOK)
        assert subscription.backlog() == 3
        topic.apply_policies(replace(topic.policies, message_ttl_s=999))
        await broker.keep_house(LOOK)
        assert subscription.backlog() == 0

    simulated(scenario)


def test_a_topic_where_nothing_moves_is_read_once() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic, "s")
        await broker.publish(topic, 11, runs=2)
        topic.ledger._drop_cache()
        reads = 0
        read = topic.ledger.read

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(ledger, name)

            async def read(self, *args: int, **options: bool) -> object:
                nonlocal reads
                reads += 1
                return await read(*args, **options)  # type: ignore[arg-type]

        ledger = topic.ledger
        topic.backlog = Backlog(Counting(), topic.subscriptions)  # type: ignore[arg-type]
        for _ in range(5):
            await broker.keep_house(LOOK)
        assert reads == 1

    simulated(scenario, config_of(retention=RetentionConfig(ttl_s=1_000)))


def test_slots_that_drain_are_free_when_what_they_wait_for_has_expired() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        _, _, first = await broker.consumer(topic, sub_type=SubType.Key_Shared, name="a", permits=1_000)
        keys = [b"key-%d" % number for number in range(50)]
        await broker.publish_entries(topic, [keyed(key) for key in keys])
        await until(lambda: first.messages == 50)
        _, _, second = await broker.consumer(topic, sub_type=SubType.Key_Shared, name="b", permits=1_000)
        await asyncio.sleep(11)
        await broker.publish_entries(topic, [keyed(key) for key in keys])
        await asyncio.sleep(1)
        assert second.messages == 0, "its slots are still with the first one"
        assert first.messages < 100
        await broker.keep_house(LOOK)
        await until(lambda: first.messages + second.messages == 100)
        assert second.messages > 0

    simulated(scenario, TTL_10_S)


def keyed(key: bytes) -> bytes:
    """An entry with a key, as it is stored."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, partition_key=key.decode()
    ).SerializeToString()
    checked = len(metadata).to_bytes(4, "big") + metadata + b"payload"
    return b"\x0e\x01" + crc32c.crc32c(checked).to_bytes(4, "big") + checked
