"""Limits on the producers of a topic, checked when a producer connects.

Limits are read from the current policies; connected producers stay when a limit is lowered. A limit of 0 is
no limit. Error texts are those of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.broker.topics.peer_hosts import count_from_host_of
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import EncryptionRequired, ProducerBusy
from magnetar.common.naming.topic_name import TopicName


def check_encrypts(policies: EffectivePolicies, topic: TopicName, producer: Producer) -> None:
    """Raises EncryptionRequired for a producer that does not encrypt where encryption is required."""
    if policies.encryption_required and not producer.encrypts:
        raise EncryptionRequired(f"Encryption is required in {topic}: let the producer encrypt")


def check_one_more_producer(
    policies: EffectivePolicies, topic: TopicName, present: Collection[Producer], newcomer: Producer
) -> None:
    """Raises ProducerBusy when the topic has its maximum of producers, in total or from one address."""
    if 0 < policies.max_producers <= len(present):
        raise ProducerBusy(f"topic {topic} reached its max producers limit of {policies.max_producers}")
    most = policies.max_producers_same_address
    if 0 < most <= count_from_host_of(newcomer.peer, (producer.peer for producer in present), most):
        raise ProducerBusy(f"topic {topic} reached its max same address producers limit of {most}")
