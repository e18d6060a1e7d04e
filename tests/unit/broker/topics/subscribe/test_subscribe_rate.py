"""How often one consumer may subscribe in a period; others are not concerned, and memory is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.broker.topics.subscribe.subscribe_rate import IDENTITIES_MAX, SubscribeRate
from magnetar.common.errors import NotAllowed
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.unit.broker.topics.simulated_broker import ListPeer, SimBroker, simulated

ONE = ("10.0.0.1", "c", 1)
OTHER = ("10.0.0.2", "c", 1)


def test_a_consumer_has_its_share_of_each_period() -> None:
    rate = SubscribeRate()
    assert [rate.admit(ONE, 2, 30, now) for now in (0.0, 10.0, 20.0, 29.9)] == [True, True, False, False]
    assert rate.admit(OTHER, 2, 30, 29.9), "each consumer has a share of its own"
    assert rate.admit(ONE, 2, 30, 30.0)


def test_a_change_of_the_limit_holds_at_once() -> None:
    rate = SubscribeRate()
    assert rate.admit(ONE, 1, 30, 0.0)
    assert not rate.admit(ONE, 1, 30, 1.0)
    assert rate.admit(ONE, 2, 30, 2.0)


def test_more_consumers_than_are_counted_share_what_one_may() -> None:
    rate = SubscribeRate()
    for number in range(IDENTITIES_MAX):
        assert rate.admit(("host", "c", number), 3, 30, 0.0)
    assert [rate.admit(("host", "c", -2 - number), 3, 30, 1.0) for number in range(5)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert len(rate._counts) == IDENTITIES_MAX + 1
    assert rate.admit(ONE, 3, 30, 31.0)
    assert len(rate._counts) == 1


def test_subscribing_too_often_is_not_allowed_until_the_next_period() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.apply_policies(replace(topic.policies, subscribes_per_consumer=1, subscribe_period_s=30))
        broker._ids = 6
        subscription, consumer, _ = await broker.consumer(topic)
        topic.remove_consumer(subscription, consumer)
        broker._ids = 6
        with pytest.raises(NotAllowed, match="subscribe rate") as refused:
            await broker.consumer(topic, peer=ListPeer("10.0.0.1:50000"))
        assert code_of(refused.value) == ServerError.NotAllowedError
        broker._ids = 6
        subscription, consumer, _ = await broker.consumer(topic, peer=ListPeer("10.0.0.2:50000"))
        topic.remove_consumer(subscription, consumer)
        await asyncio.sleep(30)
        broker._ids = 6
        await broker.consumer(topic)

    simulated(scenario)
