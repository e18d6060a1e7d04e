"""Limits that this broker's configuration imposes on policies.

A policy that would be stored but could never apply is refused when it is set.
"""

from __future__ import annotations

from magnetar.broker.admin.policies.policy_json import BadPolicy
from magnetar.broker.config import BrokerConfig
from magnetar.broker.topics.registry.partitioned_topics import PARTITIONS_MAX
from magnetar.common.metadata.values import Policies


def check_within_broker(proto: str, policies: Policies, config: BrokerConfig) -> None:
    """Checks one field of `policies` that is being set. Raises BadPolicy with Pulsar's status."""
    if proto == "max_message_bytes" and policies.max_message_bytes > config.publish.message_bytes_max:
        raise BadPolicy(
            f"maxMessageSize of a topic may be at most {config.publish.message_bytes_max}, the broker's own "
            "maxMessageSize: clients cannot send larger messages",
            412,
        )
    if proto == "auto_topic_creation":
        most = config.policies.topic_creation.partitions_max or PARTITIONS_MAX
        if policies.auto_topic_creation.partitions > most:
            raise BadPolicy(
                f"defaultNumPartitions may be at most {most} (maxNumPartitionsPerPartitionedTopic)", 406
            )
