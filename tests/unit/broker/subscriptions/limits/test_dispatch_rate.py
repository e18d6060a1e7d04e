"""Dispatch rates: they delay, never drop, hold together, and say what they throttle."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.broker.policies.config import RateConfig
from magnetar.broker.policies.effective_policies import Rate
from magnetar.broker.stats import TopicStats
from magnetar.broker.subscriptions.limits.dispatch_rate import BYTES, MESSAGES, OF_TOPIC, DispatchLimit
from magnetar.broker.subscriptions.types.subscription_type import SubType

from tests.unit.broker.topics.simulated_broker import SimBroker, config_of, simulated
from tests.unit.ledger.managed_ledger.harness import until

TYPES = [SubType.Exclusive, SubType.Shared, SubType.Key_Shared]


@pytest.mark.parametrize("sub_type", TYPES)
def test_messages_go_out_at_the_rate_of_their_topic_and_none_is_lost(sub_type: SubType.ValueType) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(messages=10)))
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 10, runs=6)
        started = asyncio.get_running_loop().time()
        _, _, peer = await broker.consumer(topic, sub_type=sub_type, permits=1_000)
        await asyncio.sleep(2.5)
        assert 30 <= peer.messages <= 36, "a full bucket of ten at first, then ten a second"
        (why,) = [each for each in subscription.reasons() if each.code == "rate_limited"]
        text = "throttled by the dispatch rate of the topic, which is 10 messages in 1 s: goes on in 0."
        assert why.text.startswith(text)
        assert why.stops
        assert (why.data["scope"], why.data["rates"]) == ("the topic", {"the topic": "10 messages in 1 s"})
        assert why.data["until"]
        assert 2 <= subscription.stats.times_throttled(OF_TOPIC, MESSAGES) <= 300, "once a wait"
        assert not subscription.stats.times_throttled(OF_TOPIC, BYTES)
        await until(lambda: peer.messages == 60)
        assert asyncio.get_running_loop().time() - started >= 4.8
        await asyncio.sleep(1)
        assert peer.messages == 60

    simulated(scenario)


def test_bytes_go_out_at_their_rate_a_run_at_a_time() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(byte_count=1_000)))
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 1, size=500, runs=20)
        _, _, peer = await broker.consumer(topic, permits=1_000)
        await asyncio.sleep(5.1)
        assert subscription.stats.times_throttled(OF_TOPIC, BYTES)
        assert 10 <= peer.messages <= 13, "500 bytes each: two a second, and a bucket of two"

    simulated(scenario)


def test_all_subscriptions_of_a_topic_share_its_rate_and_one_of_their_own_holds_besides() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        policies = replace(
            topic.policies,
            dispatch_rate=Rate(messages=20),
            dispatch_rate_of_subscription={"slow": Rate(messages=2)},
        )
        topic.apply_policies(policies)
        peers = {}
        for name in ("slow", "a", "b"):
            await broker.subscription(topic, name)
        await broker.publish(topic, 10, runs=30)
        for name in ("slow", "a", "b"):
            _, _, peers[name] = await broker.consumer(topic, name, permits=1_000)
        await asyncio.sleep(5)
        sent = {name: peer.messages for name, peer in peers.items()}
        assert 110 <= sum(sent.values()) <= 125
        assert sent["slow"] <= 12
        why = topic.subscriptions["slow"].why_not_dispatching()
        assert (why or "").startswith("throttled by the dispatch rate of the ")

    simulated(scenario)


@pytest.mark.parametrize("sub_type", TYPES)
@pytest.mark.parametrize("rate", [3, 100])
def test_subscriptions_that_share_a_rate_get_equally_many(sub_type: SubType.ValueType, rate: int) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(messages=rate)))
        names = ["busy", "a", "b", "without-permits"]
        subscriptions = [await broker.subscription(topic, name) for name in names]
        await broker.publish(topic, 1, runs=8 * rate)
        peers = []
        for name in names:
            permits = 0 if name == "without-permits" else 10_000
            peers.append((await broker.consumer(topic, name, sub_type, permits=permits))[2])
        await asyncio.sleep(0.1)  # the first one has taken what was in the bucket
        before = [peer.messages for peer in peers]
        for _ in range(6_000):
            subscriptions[0].wake()  # as each acknowledgement does
            await asyncio.sleep(0.001)
        sent = [peer.messages - already for peer, already in zip(peers, before, strict=True)]
        assert sent.pop() == 0
        assert 5 * rate <= sum(sent) <= 6 * rate + 1
        assert max(sent) - min(sent) <= max(1, rate // 50), f"more than comes in 20 ms: {sent}"

    simulated(scenario)


@pytest.mark.parametrize("of_topic", [3, 15, 50])
def test_topics_that_share_a_rate_and_have_their_own_get_equally_much(of_topic: int) -> None:
    async def scenario(broker: SimBroker) -> None:
        peers = []
        for number in range(3):
            topic = await broker.topic(f"persistent://public/default/t{number}")
            topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(messages=of_topic)))
            for name in ("a", "b"):
                await broker.subscription(topic, name)
            await broker.publish(topic, 1, runs=150)
            consumers = [await broker.consumer(topic, name, SubType.Shared, permits=1_000) for name in "ab"]
            peers += [peer for _, _, peer in consumers]
        await asyncio.sleep(1)
        before = [peer.messages for peer in peers]
        await asyncio.sleep(10)
        sent = [peer.messages - already for peer, already in zip(peers, before, strict=True)]
        expected = 10 * min(20, 3 * of_topic)
        assert 0.9 * expected <= sum(sent) <= 1.1 * expected
        assert max(sent) - min(sent) <= 3, sent

    simulated(scenario, config_of(rates=RateConfig(broker_dispatch_messages=20)))


def test_a_change_acts_at_once_and_does_not_forgive_what_is_owed() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(messages=1)))
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 10, runs=10)
        _, _, peer = await broker.consumer(topic, permits=1_000)
        await asyncio.sleep(0.1)
        before = peer.messages
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate(messages=2)))
        await asyncio.sleep(0.1)
        assert peer.messages == before
        topic.apply_policies(replace(topic.policies, dispatch_rate=Rate()))
        await asyncio.sleep(0.1)
        assert peer.messages == 100
        assert subscription.dispatch_rate is None

    simulated(scenario)


def test_a_rate_of_the_broker_holds_for_all_topics_together() -> None:
    async def scenario(broker: SimBroker) -> None:
        peers = []
        for number in range(2):
            topic = await broker.topic(f"persistent://public/default/t{number}")
            await broker.subscription(topic)
            await broker.publish(topic, 10, runs=10)
            peers.append((await broker.consumer(topic, permits=1_000))[2])
        await asyncio.sleep(4)
        assert 45 <= sum(peer.messages for peer in peers) <= 55
        assert all(peer.messages for peer in peers)

    simulated(scenario, config_of(rates=RateConfig(broker_dispatch_messages=10)))


def test_a_rate_of_the_broker_may_change_while_messages_go_out() -> None:
    rates = RateConfig(broker_dispatch_messages=10)

    async def scenario(broker: SimBroker) -> None:
        async def change(messages: int) -> None:
            # As the dynamic configuration does.
            object.__setattr__(rates, "broker_dispatch_messages", messages)
            broker.registry.rates_changed()
            broker.registry.policies_changed(None, None)
            await broker.registry.policies_applied(10)

        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 10, runs=100)
        peer = (await broker.consumer(topic, permits=10_000))[2]
        await asyncio.sleep(2)
        slow = peer.messages
        assert 20 <= slow <= 40
        await change(100)
        await asyncio.sleep(2)
        assert 150 <= peer.messages - slow <= 320
        await change(0)
        await until(lambda: peer.messages == 1_000)

    simulated(scenario, config_of(rates=rates))


@pytest.mark.parametrize(("without_backlog", "sent"), [(True, 11), (False, 30)])
def test_consumers_that_have_caught_up_may_be_left_out(without_backlog: bool, sent: int) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        _, _, peer = await broker.consumer(topic, permits=10_000)
        await broker.publish(topic, 1, runs=30)
        await asyncio.sleep(0.05)
        assert peer.messages == sent

    simulated(
        scenario, config_of(rates=RateConfig(topic_dispatch_messages=10, without_backlog=without_backlog))
    )


def test_a_consumer_with_a_backlog_is_limited_until_it_has_caught_up() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 1_000, runs=2)
        _, _, peer = await broker.consumer(topic, permits=10_000)
        await asyncio.sleep(3)
        assert peer.messages < 1_000
        await asyncio.sleep(2)
        assert peer.messages == 2_000, "the last thousand without a limit"

    simulated(
        scenario,
        config_of(rates=RateConfig(topic_dispatch_messages=200, without_backlog=False)),
        ledger_entries_max=10_000,
    )


def test_a_subscription_that_nothing_limits_has_no_gate() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        assert (await broker.subscription(topic)).dispatch_rate is None

    simulated(scenario)


def test_a_relative_rate_lets_out_what_came_in_as_well() -> None:
    stats = TopicStats()
    limit = DispatchLimit(OF_TOPIC, Rate(messages=10, relative_to_publish_rate=True), 0.0, stats)
    limit.take(10, 0, 0.0)
    stats.messages_in = 500
    assert room(limit, 0.5) == pytest.approx(5, abs=1), "the first period knows no publish rate yet"
    limit.take(5, 0, 0.5)
    assert room(limit, 1.0) == pytest.approx(5, abs=1)
    assert room(limit, 1.1) == pytest.approx(56, abs=1), "now 510 a second"
    limit.take(56, 0, 1.1)
    assert room(limit, 1.9) == pytest.approx(408, abs=1)
    assert room(limit, 3.0) == 10, "nothing was published since: back to ten"


def test_batches_count_as_one_where_the_broker_is_told_so() -> None:
    stats = TopicStats()
    rate = Rate(messages=10, relative_to_publish_rate=True)
    limit = DispatchLimit(OF_TOPIC, rate, 0.0, stats, counts_batches=True)
    stats.messages_in, stats.entries_in = 1_000, 20
    limit.take(10, 0, 1.0)
    assert room(limit, 1.0) == 0
    assert room(limit, 1.5) == pytest.approx(15, abs=1), "20 entries a second came in"


def room(limit: DispatchLimit, now: float) -> int:
    messages, byte_count = limit.available(now)
    assert messages is not None
    assert byte_count is None
    return messages
