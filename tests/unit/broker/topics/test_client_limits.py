from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.peer import Peer
from magnetar.broker.policies.effective_policies import EffectivePolicies, resolve
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.producer_limits import check_encrypts, check_one_more_producer
from magnetar.broker.topics.subscribe.consumer_limits import (
    check_one_more_consumer,
    check_one_more_subscription,
)
from magnetar.common.errors import EncryptionRequired, NotAllowed, ProducerBusy, TooManyConsumers
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.topics.fakes import FakePeer

TOPIC = TopicName.parse("t")


def policies(**changes: Any) -> EffectivePolicies:
    return replace(resolve(BrokerConfig(), Policies(), Policies()), **changes)


def peer(address: str) -> FakePeer:
    return FakePeer(address=address)


def producer(address: str, *, encrypts: bool = False) -> Producer:
    return Producer(1, address, 0, peer(address), {}, b"", 0, encrypts=encrypts)


@dataclass
class Consumer:
    peer: Peer


@dataclass
class Subscription:
    consumers: list[Consumer] = field(default_factory=list)

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)


def subscriptions(**addresses: list[str]) -> Any:
    return {
        name: Subscription([Consumer(cast(Peer, peer(each))) for each in consumers])
        for name, consumers in addresses.items()
    }


def test_producers_are_counted_in_all_and_by_host() -> None:
    present = [producer("10.0.0.1:1"), producer("10.0.0.1:2"), producer("10.0.0.2:1")]
    newcomer = producer("10.0.0.1:3")
    check_one_more_producer(policies(), TOPIC, present, newcomer)
    check_one_more_producer(policies(max_producers=4), TOPIC, present, newcomer)
    with pytest.raises(ProducerBusy, match="max producers limit of 3"):
        check_one_more_producer(policies(max_producers=3), TOPIC, present, newcomer)
    of_host = policies(max_producers_same_address=2)
    check_one_more_producer(of_host, TOPIC, present, producer("10.0.0.2:9"))
    with pytest.raises(ProducerBusy, match="same address"):
        check_one_more_producer(of_host, TOPIC, present, newcomer)


def test_consumers_are_counted_by_topic_host_and_subscription() -> None:
    present = subscriptions(a=["10.0.0.1:1", "10.0.0.1:2"], b=["10.0.0.2:1"])
    newcomer = peer("10.0.0.1:3")

    def check(subscription: str, who: FakePeer = newcomer, **changes: int) -> None:
        check_one_more_consumer(policies(**changes), TOPIC, present, subscription, who)

    check("a")
    check("a", max_consumers=4, max_consumers_same_address=3, max_consumers_per_subscription=3)
    with pytest.raises(TooManyConsumers, match="max consumers limit of 3"):
        check("new", max_consumers=3)
    with pytest.raises(TooManyConsumers, match="same address"):
        check("b", max_consumers_same_address=2)
    check("b", peer("10.0.0.2:7"), max_consumers_same_address=2)
    with pytest.raises(TooManyConsumers, match="subscription a"):
        check("a", max_consumers_per_subscription=2)
    check("b", max_consumers_per_subscription=2)
    check("new", max_consumers_per_subscription=1)


def test_subscriptions_are_counted() -> None:
    check_one_more_subscription(policies(), TOPIC, 1_000)
    check_one_more_subscription(policies(max_subscriptions=2), TOPIC, 1)
    with pytest.raises(NotAllowed):
        check_one_more_subscription(policies(max_subscriptions=2), TOPIC, 2)


def test_only_those_who_encrypt_come_in_where_that_is_required() -> None:
    check_encrypts(policies(), TOPIC, producer("a:1"))
    check_encrypts(policies(encryption_required=True), TOPIC, producer("a:1", encrypts=True))
    with pytest.raises(EncryptionRequired):
        check_encrypts(policies(encryption_required=True), TOPIC, producer("a:1"))
