"""Backlog quotas by size and by time: producers wait or fail, or the slowest subscriptions skip ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from magnetar.broker.policies.config import QuotaConfig
from magnetar.broker.policies.effective_policies import EVICT, EXCEPTION, HOLD, Quota
from magnetar.broker.topics.backlog.backlog import Backlog
from magnetar.common.errors import ProducerBlocked, ProducerQuotaExceeded
from magnetar.common.naming.position import Position
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.error_codes import code_of

from tests.unit.broker.topics.simulated_broker import ListPeer, SimBroker, config_of, counted, simulated
from tests.unit.ledger.managed_ledger.harness import until

LOOK = "backlog quotas"
POLICIES = [
    pytest.param(
        HOLD, ProducerBlocked, pb.ServerError.ProducerBlockedQuotaExceededError, id="producer_request_hold"
    ),
    pytest.param(
        EXCEPTION,
        ProducerQuotaExceeded,
        pb.ServerError.ProducerBlockedQuotaExceededException,
        id="producer_exception",
    ),
]


@pytest.mark.parametrize(("policy", "error", "code"), POLICIES)
def test_beyond_the_size_producers_are_disconnected_and_refused_until_the_backlog_is_below(
    policy: int, error: type[Exception], code: int
) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        topic.apply_policies(replace(topic.policies, size_quota=Quota(1_000, policy)))  # type: ignore[arg-type]
        producer = await broker.producer(topic)
        assert isinstance(producer.peer, ListPeer)
        await broker.publish(topic, 9)
        await broker.keep_house(LOOK)
        assert topic.producers, "900 bytes are below the limit"
        before = counted("magnetar_backlog_quota_disconnected_producers_total", quota_type="size")
        await broker.publish(topic, 1)
        await broker.keep_house(LOOK)
        after = counted("magnetar_backlog_quota_disconnected_producers_total", quota_type="size")
        assert after == before + 1
        assert not topic.producers
        assert producer.peer.count(pb.BaseCommand.CLOSE_PRODUCER) == 1
        with pytest.raises(error) as refused:
            await broker.producer(topic)
        assert code_of(refused.value) == code
        subscription.cursor.ack_cumulative(topic.ledger.next_position(Position(-1, -1)) or Position(-1, -1))
        await broker.producer(topic)

    simulated(scenario)


@pytest.mark.parametrize(("policy", "error", "code"), POLICIES)
def test_beyond_the_age_producers_are_disconnected_and_refused_until_it_is_acknowledged(
    policy: int, error: type[Exception], code: int
) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        topic.apply_policies(replace(topic.policies, time_quota=Quota(10, policy)))  # type: ignore[arg-type]
        await broker.producer(topic)
        await broker.publish(topic, 1)
        await asyncio.sleep(10)
        await broker.keep_house(LOOK)
        assert topic.producers, "ten seconds are not more than ten"
        await asyncio.sleep(1)
        await broker.keep_house(LOOK)
        assert not topic.producers
        with pytest.raises(error) as refused:
            await broker.producer(topic)
        assert code_of(refused.value) == code
        subscription.cursor.ack_cumulative(topic.ledger.last_position)
        await broker.producer(topic)

    simulated(scenario)


def test_a_quota_of_the_broker_holds_for_topics_without_their_own() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 5)
        with pytest.raises(ProducerQuotaExceeded, match="backlog"):
            await broker.producer(topic)

    simulated(scenario, config_of(quotas=QuotaConfig(limit_bytes=500, policy="producer_exception")))


def test_the_slowest_subscriptions_skip_until_the_backlog_is_nine_tenths_of_the_limit() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        slow, fast = await broker.subscription(topic, "slow"), await broker.subscription(topic, "fast")
        reader, _, _ = await broker.consumer(topic, "reader", durable=False)
        topic.apply_policies(replace(topic.policies, size_quota=Quota(2_000, EVICT)))
        producer = await broker.producer(topic)
        await broker.publish(topic, 3, runs=10)
        fast.cursor.ack_cumulative(topic.ledger.spans.position_before_last(500))
        await broker.keep_house(LOOK)
        assert (slow.backlog(), fast.backlog()) == (18, 5), "1,800 bytes; who is faster loses nothing"
        assert reader.backlog() == 30, "a reader keeps nothing back and is left alone"
        assert list(topic.producers.values()) == [producer]
        assert topic.backlog_bytes == 1_800
        await broker.producer(topic, "another")

    simulated(scenario, ledger_entries_max=1_000)


def test_the_slowest_subscriptions_skip_what_is_older_than_nine_tenths_of_the_time() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        topic.apply_policies(replace(topic.policies, time_quota=Quota(100, EVICT)))
        for _ in range(11):
            await broker.publish(topic, 1)
            await asyncio.sleep(9.9)
        await broker.keep_house(LOOK)
        assert subscription.backlog() == 9, "those of the last 90 seconds"

    simulated(scenario)


def test_a_topic_without_durable_subscriptions_has_no_backlog() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.consumer(topic, "reader", durable=False)
        topic.apply_policies(replace(topic.policies, size_quota=Quota(1, HOLD), time_quota=Quota(1, HOLD)))
        await broker.publish(topic, 5)
        await asyncio.sleep(10)
        assert topic.backlog_bytes == 0
        await broker.keep_house(LOOK)
        await broker.producer(topic)

    simulated(scenario)


def test_statistics_know_how_old_the_oldest_message_is() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        now_ms: Callable[[], int] = broker.clock.wall_ms
        ages: Callable[[], Awaitable[int]] = lambda: topic.backlog.oldest_age_s(now_ms())  # noqa: E731
        assert (topic.oldest_backlog_age_s, await ages()) == (-1, -1)
        await broker.publish(topic, 2)
        await asyncio.sleep(30)
        await broker.publish(topic, 2)
        await broker.keep_house(LOOK)
        await asyncio.sleep(5)
        assert topic.oldest_backlog_age_s == await ages() == 35
        subscription.cursor.ack_cumulative(topic.ledger.spans.position_before_last(200))
        assert topic.oldest_backlog_age_s == -1, "it would have to be read"
        assert await ages() == topic.oldest_backlog_age_s == 5
        subscription.cursor.ack_cumulative(topic.ledger.last_position)
        assert (topic.oldest_backlog_age_s, await ages()) == (-1, -1)

    simulated(scenario)


def test_eviction_lets_the_ledgers_behind_it_go() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        topic.apply_policies(replace(topic.policies, size_quota=Quota(1_000, EVICT)))
        for _ in range(5):
            await broker.publish(topic, 11)
            await asyncio.sleep(0.1)
        await broker.keep_house(LOOK)
        await until(lambda: topic.storage_entries <= 22)

    simulated(scenario)


@pytest.mark.parametrize("afterwards", [Quota(3_600, EVICT), Quota(-1, EVICT)])
def test_a_quota_that_is_lifted_while_ages_are_read_evicts_by_what_was_exceeded(
    monkeypatch: pytest.MonkeyPatch, afterwards: Quota
) -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        topic.apply_policies(replace(topic.policies, time_quota=Quota(1_000, EVICT)))
        await broker.publish(topic, 1)
        await asyncio.sleep(995)
        await broker.publish(topic, 7)
        await asyncio.sleep(10)

        oldest_age_s = Backlog.oldest_age_s

        async def read(backlog: Backlog, now_ms: int) -> int:
            age_s = await oldest_age_s(backlog, now_ms)
            topic.apply_policies(replace(topic.policies, time_quota=afterwards))
            return age_s

        monkeypatch.setattr(Backlog, "oldest_age_s", read)
        await broker.keep_house(LOOK)
        assert subscription.backlog() == 7

    simulated(scenario)
