"""How many producers, consumers and subscriptions a topic takes: asked when one more comes.

Limits are read from the policies that hold at that moment; who is there already stays when a limit goes down.
A limit of 0 is none. Answers are those of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from magnetar.broker.peer import Peer
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import EncryptionRequired, NotAllowed, ProducerBusy, TooManyConsumers
from magnetar.common.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.topics.topic import AnySubscription


def check_encrypts(policies: EffectivePolicies, topic: TopicName, producer: Producer) -> None:
    """Raises EncryptionRequired for a producer that does not encrypt where that is required."""
    if policies.encryption_required and not producer.encrypts:
        raise EncryptionRequired(f"encryption is required in {topic}; let the producer encrypt")


def check_one_more_producer(
    policies: EffectivePolicies, topic: TopicName, present: Collection[Producer], newcomer: Producer
) -> None:
    """Raises ProducerBusy when there are as many as there may be, in all or from one address."""
    if 0 < policies.max_producers <= len(present):
        raise ProducerBusy(f"topic {topic} reached its max producers limit of {policies.max_producers}")
    most = policies.max_producers_same_address
    if 0 < most <= _from_same_host(newcomer.peer, (producer.peer for producer in present), most):
        raise ProducerBusy(f"topic {topic} reached its max same address producers limit of {most}")


def check_one_more_consumer(
    policies: EffectivePolicies,
    topic: TopicName,
    subscriptions: Mapping[str, AnySubscription],
    subscription: str,
    newcomer: Peer,
) -> None:
    """Raises TooManyConsumers when the topic, one address or the subscription has as many as it may have."""
    most = policies.max_consumers
    if most and sum(each.consumer_count for each in subscriptions.values()) >= most:
        raise TooManyConsumers(f"topic {topic} reached its max consumers limit of {most}")
    most = policies.max_consumers_same_address
    if most:
        peers = (consumer.peer for each in subscriptions.values() for consumer in each.consumers)
        if _from_same_host(newcomer, peers, most) >= most:
            raise TooManyConsumers(f"topic {topic} reached its max same address consumers limit of {most}")
    most = policies.max_consumers_per_subscription
    if most and subscription in subscriptions and subscriptions[subscription].consumer_count >= most:
        raise TooManyConsumers(f"subscription {subscription} reached its max consumers limit of {most}")


def check_one_more_subscription(policies: EffectivePolicies, topic: TopicName, present: int) -> None:
    """Raises NotAllowed when there are as many as there may be."""
    if 0 < policies.max_subscriptions <= present:
        raise NotAllowed(
            f"topic {topic} has its maximum number of subscriptions, {policies.max_subscriptions}; "
            "delete one first"
        )


def _from_same_host(newcomer: Peer, present: Iterable[Peer], most: int) -> int:
    """How many of them connect from the newcomer's host, counted up to `most`."""
    host = _host(newcomer)
    return sum(1 for _ in islice((peer for peer in present if _host(peer) == host), most))


def _host(peer: Peer) -> str:
    return peer.address.rpartition(":")[0]
