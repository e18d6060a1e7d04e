"""Limits on the consumers and subscriptions of a topic, checked when one more is added.

Limits are read from the policies in force at that moment; what exists stays when a limit is lowered. A limit
of 0 is none. Error texts are those of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.peer import Peer
from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.topics.peer_hosts import count_from_host_of
from magnetar.broker.topics.subscribe.any_subscription import AnySubscription
from magnetar.common.errors import NotAllowed, TooManyConsumers
from magnetar.common.naming.topic_name import TopicName


def check_one_more_consumer(
    policies: EffectivePolicies,
    topic: TopicName,
    subscriptions: Mapping[str, AnySubscription],
    subscription: str,
    newcomer: Peer,
) -> None:
    """Raises TooManyConsumers when the topic, one address or the subscription has its maximum."""
    most = policies.max_consumers
    if most and sum(each.consumer_count for each in subscriptions.values()) >= most:
        raise TooManyConsumers(f"topic {topic} reached its max consumers limit of {most}")
    most = policies.max_consumers_same_address
    if most:
        peers = (consumer.peer for each in subscriptions.values() for consumer in each.consumers)
        if count_from_host_of(newcomer, peers, most) >= most:
            raise TooManyConsumers(f"topic {topic} reached its max same address consumers limit of {most}")
    most = policies.max_consumers_per_subscription
    if most and subscription in subscriptions and subscriptions[subscription].consumer_count >= most:
        raise TooManyConsumers(f"subscription {subscription} reached its max consumers limit of {most}")


def check_one_more_subscription(policies: EffectivePolicies, topic: TopicName, present: int) -> None:
    """Raises NotAllowed when the topic has its maximum of subscriptions."""
    if 0 < policies.max_subscriptions <= present:
        raise NotAllowed(
            f"topic {topic} has its maximum number of subscriptions, {policies.max_subscriptions}; "
            "delete one first"
        )
