"""Topics that nobody uses are deleted after their time, and only then."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.broker.policies.config import InactiveTopicConfig
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.topics.simulated_broker import TOPIC, SimBroker, config_of, counted, simulated

LOOK = "inactive topics"
AFTER_60_S = config_of(inactive=InactiveTopicConfig(inactive_s=60))
CAUGHT_UP = config_of(inactive=InactiveTopicConfig(inactive_s=60, mode="delete_when_subscriptions_caught_up"))


async def minutes_of_housekeeping(broker: SimBroker, minutes: int) -> None:
    """Looks every 30 seconds; the first of them only begins to count."""
    for _ in range(2 * minutes):
        await broker.keep_house(LOOK)
        await asyncio.sleep(30.1)
    await broker.keep_house(LOOK)


def test_a_topic_without_clients_and_subscriptions_is_deleted_with_its_messages() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.publish(topic, 3)
        await broker.keep_house(LOOK)
        await asyncio.sleep(59)
        await broker.keep_house(LOOK)
        assert TOPIC in broker.registry.loaded
        before = counted("magnetar_inactive_topics_deleted_total")
        await asyncio.sleep(1)
        await broker.keep_house(LOOK)
        assert counted("magnetar_inactive_topics_deleted_total") == before + 1
        assert not await broker.registry.exists(TopicName.parse(TOPIC))
        again = await broker.topic()
        assert again is not topic
        assert again.storage_entries == 0

    simulated(scenario, AFTER_60_S)


def test_over_restored_metadata_nothing_is_deleted_until_it_is_released() -> None:
    """Its subscriptions may have been made after the copy."""

    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.publish(topic, 3)
        broker.ledgers.restored.holds = True
        await minutes_of_housekeeping(broker, 5)
        assert TOPIC in broker.registry.loaded
        broker.ledgers.restored.holds = False
        await minutes_of_housekeeping(broker, 2)
        assert TOPIC not in broker.registry.loaded

    simulated(scenario, AFTER_60_S)


def test_a_producer_a_subscription_or_somebody_who_asks_for_it_keeps_a_topic() -> None:
    async def scenario(broker: SimBroker) -> None:
        uses = "produced", "subscribed", "asked"
        produced, subscribed, asked = [await broker.topic(f"{TOPIC}-{use}") for use in uses]
        await broker.producer(produced)
        await broker.subscription(subscribed)
        for _ in range(10):
            await broker.keep_house(LOOK)
            await broker.topic(asked.name.full)
            await asyncio.sleep(59)
        assert set(broker.registry.loaded.values()) == {produced, subscribed, asked}

    simulated(scenario, AFTER_60_S)


def test_the_time_begins_anew_when_the_last_client_goes() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        producer = await broker.producer(topic)
        await minutes_of_housekeeping(broker, 3)
        topic.producers.remove(producer)
        await broker.keep_house(LOOK)
        await asyncio.sleep(59)
        await broker.keep_house(LOOK)
        assert TOPIC in broker.registry.loaded
        await asyncio.sleep(1)
        await broker.keep_house(LOOK)
        assert TOPIC not in broker.registry.loaded

    simulated(scenario, AFTER_60_S)


def test_a_reader_that_came_and_went_between_two_looks_counts_as_use() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.keep_house(LOOK)
        await asyncio.sleep(50)
        reader, consumer, _ = await broker.consumer(topic, "reader", durable=False)
        topic.remove_consumer(reader, consumer)
        await asyncio.sleep(20)
        await broker.keep_house(LOOK)
        assert TOPIC in broker.registry.loaded

    simulated(scenario, AFTER_60_S)


def test_looking_at_a_topic_does_not_keep_it() -> None:
    async def scenario(broker: SimBroker) -> None:
        name = (await broker.topic()).name
        for _ in range(2):
            await broker.keep_house(LOOK)
            await asyncio.sleep(30.1)
            await broker.registry.get(name, create=False)
        await broker.keep_house(LOOK)
        assert TOPIC not in broker.registry.loaded

    simulated(scenario, AFTER_60_S)


def test_in_the_other_mode_subscriptions_without_a_backlog_go_with_their_topic() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 3)
        await minutes_of_housekeeping(broker, 3)
        assert TOPIC in broker.registry.loaded, "it has a backlog"
        subscription.cursor.ack_cumulative(topic.ledger.last_position)
        _, consumer, _ = await broker.consumer(topic)
        await minutes_of_housekeeping(broker, 3)
        assert TOPIC in broker.registry.loaded, "it has a consumer"
        topic.remove_consumer(subscription, consumer)
        await minutes_of_housekeeping(broker, 2)
        assert TOPIC not in broker.registry.loaded

    simulated(scenario, CAUGHT_UP)


@pytest.mark.parametrize(("minutes", "stays_for_ever"), [(5, False), (-1, True)])
def test_retention_by_time_keeps_a_topic_that_nobody_uses(minutes: int, stays_for_ever: bool) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, retention_time_min=minutes, retention_size_bytes=-1))
        await minutes_of_housekeeping(broker, 4)
        assert TOPIC in broker.registry.loaded
        await minutes_of_housekeeping(broker, 2)
        assert (TOPIC in broker.registry.loaded) is stays_for_ever

    simulated(scenario, AFTER_60_S)


def test_a_policy_switches_it_off_for_a_topic() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, inactive_delete=False))
        await minutes_of_housekeeping(broker, 5)
        assert TOPIC in broker.registry.loaded

    simulated(scenario, AFTER_60_S)


def test_a_non_persistent_topic_goes_as_well() -> None:
    async def scenario(broker: SimBroker) -> None:
        name = TopicName.parse("non-persistent://public/default/t")
        await broker.registry.get(name, create=True)
        await minutes_of_housekeeping(broker, 2)
        assert not broker.registry.loaded

    simulated(scenario, AFTER_60_S)


@pytest.mark.parametrize("with_metadata", [False, True])
def test_the_metadata_of_partitions_that_are_gone_goes_only_where_configured(with_metadata: bool) -> None:
    async def scenario(broker: SimBroker) -> None:
        name = TopicName.parse(TOPIC)
        await broker.partitioned.create_partitioned(name, 2, {})
        for index in range(2):
            await broker.topic(name.partition(index).full)
        await minutes_of_housekeeping(broker, 2)
        assert not broker.registry.loaded
        assert await broker.registry.partitions(name) == (0 if with_metadata else 2)

    simulated(
        scenario,
        config_of(inactive=InactiveTopicConfig(inactive_s=60, delete_partitioned_metadata=with_metadata)),
    )


def test_partitions_that_somebody_came_to_meanwhile_are_not_deleted_with_their_metadata() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic_name = TopicName.parse(TOPIC)
        await broker.partitioned.create_partitioned(topic_name, 2, {})
        for index in range(2):
            await broker.topic(topic_name.partition(index).full)
        exists = broker.registry.exists

        async def somebody_comes(name: TopicName) -> bool:
            found = await exists(name)
            if name == topic_name.partition(1) and not found:
                broker.registry.exists = exists  # type: ignore[method-assign]
                topic = await broker.topic(topic_name.partition(0).full)
                await broker.subscription(topic, "new")
            return found

        await broker.keep_house(LOOK)
        await asyncio.sleep(61)
        broker.registry.exists = somebody_comes  # type: ignore[method-assign]
        await broker.keep_house(LOOK)
        assert broker.registry.exists is not somebody_comes, "somebody came"
        assert await broker.registry.partitions(topic_name) == 2
        assert list(broker.registry.loaded[topic_name.partition(0).full].subscriptions) == ["new"]

    simulated(
        scenario, config_of(inactive=InactiveTopicConfig(inactive_s=60, delete_partitioned_metadata=True))
    )
