"""Every policy that a namespace or a topic may have: its names, its shape, and what it comes to in the end.

The REST routes, the dump of a namespace's policies and the verbs of `magnetar admin` are made from it.
Backlog quotas, which are two policies under one name, and the dispatch rates of single subscriptions, which
are many, have routes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.policy_json import (
    DELAYED_DELIVERY,
    INACTIVE_TOPICS,
    PERSISTENCE,
    PUBLISH_RATE,
    RATE,
    RETENTION,
    SUBSCRIBE_RATE,
    Flag,
    Kind,
    Number,
    TypeNames,
    WrappedFlag,
)
from magnetar.broker.admin.policy_kinds import AutoTopicCreation
from magnetar.broker.policies.effective import MB, EffectivePolicies, Rate
from magnetar.common.metadata.values import Policies

NUMBER: Final = Number()
FLAG: Final = Flag()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyField:
    """One policy."""

    proto: str
    """The field of `Policies` that keeps it."""
    kind: Kind
    namespace: str = ""
    """Its name in a namespace's paths; empty: namespaces do not have it."""
    topic: str = ""
    """Its name in a topic's paths; empty: topics do not have it."""
    dump: str = ""
    """Its key among all policies of a namespace; empty: it is not there."""
    by_cluster: bool = False
    """In the dump it stands under the name of the cluster."""
    applied: Callable[[EffectivePolicies], Any] | None = None
    """What it comes to; None where `applied` is ignored."""
    unset_is_204: bool = False
    """On a topic, 204 and not 200 says that it is not set."""
    unset: Any = None
    """What a namespace answers that does not set it; None is an empty body."""
    never_removed: bool = False
    """A namespace has no DELETE for it; null takes it away."""
    value_in_query: bool = False
    """On a topic the value is the parameter of that name, not the body."""
    verb: str = ""
    """In the commands `set-<verb>`, `get-<verb>`, `remove-<verb>` of a namespace."""
    topic_verb: str = ""
    """Likewise of a topic, where it is another one."""

    def write(self, policies: Policies, value: Any, name: str) -> None:
        """Set it, or with None take it away. `name` is what a refusal calls it. Raises Refused."""
        if value is None:
            self.clear(policies)
        else:
            self.kind.put(policies, self.proto, value, name)

    def clear(self, policies: Policies) -> None:
        """It is not set any more."""
        policies.ClearField(self.proto)  # type: ignore[arg-type]


def rate_json(rate: Rate) -> dict[str, Any]:
    """A rate as it holds; 0 is no limit."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.byte_count,
        "relativeToPublishRate": rate.relative_to_publish_rate,
        "ratePeriodInSecond": rate.period_s,
    }


FIELDS: Final = (
    PolicyField(
        proto="retention",
        kind=RETENTION,
        namespace="retention",
        topic="retention",
        dump="retention_policies",
        verb="retention",
        applied=lambda policies: {
            "retentionTimeInMinutes": policies.retention_time_min,
            "retentionSizeInMB": policies.retention_size_bytes // MB
            if policies.retention_size_bytes > 0
            else policies.retention_size_bytes,
        },
    ),
    PolicyField(
        proto="message_ttl_s",
        kind=Number(below="Invalid value for message TTL, message TTL must >= 0"),
        namespace="messageTTL",
        topic="messageTTL",
        dump="message_ttl_in_seconds",
        verb="message-ttl",
        value_in_query=True,
        applied=lambda policies: policies.message_ttl_s,
    ),
    PolicyField(
        proto="subscription_expiration_min",
        kind=Number(below="Invalid value for subscription expiration time"),
        namespace="subscriptionExpirationTime",
        dump="subscription_expiration_time_minutes",
        verb="subscription-expiration-time",
    ),
    PolicyField(
        proto="deduplication",
        kind=FLAG,
        namespace="deduplication",
        topic="deduplicationEnabled",
        dump="deduplicationEnabled",
        verb="deduplication",
        applied=lambda policies: policies.deduplication,
    ),
    PolicyField(
        proto="deduplication_snapshot_s",
        kind=NUMBER,
        namespace="deduplicationSnapshotInterval",
        topic="deduplicationSnapshotInterval",
        dump="deduplicationSnapshotIntervalSeconds",
        never_removed=True,
        verb="deduplication-snapshot-interval",
    ),
    PolicyField(
        proto="dispatch_rate",
        kind=RATE,
        namespace="dispatchRate",
        topic="dispatchRate",
        dump="topicDispatchRate",
        by_cluster=True,
        verb="dispatch-rate",
        applied=lambda policies: rate_json(policies.dispatch_rate),
    ),
    PolicyField(
        proto="subscription_dispatch_rate",
        kind=RATE,
        namespace="subscriptionDispatchRate",
        topic="subscriptionDispatchRate",
        dump="subscriptionDispatchRate",
        by_cluster=True,
        verb="subscription-dispatch-rate",
        applied=lambda policies: rate_json(policies.subscription_dispatch_rate),
    ),
    PolicyField(
        proto="publish_rate",
        kind=PUBLISH_RATE,
        namespace="publishRate",
        topic="publishRate",
        dump="publishMaxMessageRate",
        by_cluster=True,
        unset_is_204=True,
        verb="publish-rate",
    ),
    PolicyField(
        proto="subscribe_rate",
        kind=SUBSCRIBE_RATE,
        namespace="subscribeRate",
        topic="subscribeRate",
        dump="clusterSubscribeRate",
        by_cluster=True,
        verb="subscribe-rate",
        applied=lambda policies: {
            "subscribeThrottlingRatePerConsumer": policies.subscribes_per_consumer,
            "ratePeriodInSecond": policies.subscribe_period_s,
        },
    ),
    PolicyField(
        proto="max_producers_per_topic",
        kind=NUMBER,
        namespace="maxProducersPerTopic",
        topic="maxProducers",
        dump="max_producers_per_topic",
        verb="max-producers-per-topic",
        topic_verb="max-producers",
        applied=lambda policies: policies.max_producers,
    ),
    PolicyField(
        proto="max_consumers_per_topic",
        kind=NUMBER,
        namespace="maxConsumersPerTopic",
        topic="maxConsumers",
        dump="max_consumers_per_topic",
        verb="max-consumers-per-topic",
        topic_verb="max-consumers",
        applied=lambda policies: policies.max_consumers,
    ),
    PolicyField(
        proto="max_consumers_per_subscription",
        kind=NUMBER,
        namespace="maxConsumersPerSubscription",
        topic="maxConsumersPerSubscription",
        dump="max_consumers_per_subscription",
        unset_is_204=True,
        verb="max-consumers-per-subscription",
    ),
    PolicyField(
        proto="max_subscriptions_per_topic",
        kind=NUMBER,
        namespace="maxSubscriptionsPerTopic",
        topic="maxSubscriptionsPerTopic",
        dump="max_subscriptions_per_topic",
        unset_is_204=True,
        verb="max-subscriptions-per-topic",
    ),
    PolicyField(
        proto="max_message_bytes",
        kind=NUMBER,
        topic="maxMessageSize",
        unset_is_204=True,
        verb="max-message-size",
    ),
    PolicyField(
        proto="max_unacked_per_consumer",
        kind=NUMBER,
        namespace="maxUnackedMessagesPerConsumer",
        topic="maxUnackedMessagesOnConsumer",
        dump="max_unacked_messages_per_consumer",
        verb="max-unacked-messages-per-consumer",
        applied=lambda policies: policies.max_unacked_per_consumer,
    ),
    PolicyField(
        proto="max_unacked_per_subscription",
        kind=NUMBER,
        namespace="maxUnackedMessagesPerSubscription",
        topic="maxUnackedMessagesOnSubscription",
        dump="max_unacked_messages_per_subscription",
        verb="max-unacked-messages-per-subscription",
        applied=lambda policies: policies.max_unacked_per_subscription,
    ),
    PolicyField(
        proto="max_topics_per_namespace",
        kind=NUMBER,
        namespace="maxTopicsPerNamespace",
        dump="max_topics_per_namespace",
        verb="max-topics-per-namespace",
    ),
    PolicyField(
        proto="auto_topic_creation",
        kind=AutoTopicCreation(),
        namespace="autoTopicCreation",
        dump="autoTopicCreationOverride",
        verb="auto-topic-creation",
    ),
    PolicyField(
        proto="auto_subscription_creation",
        kind=WrappedFlag("allowAutoSubscriptionCreation", "AutoSubscriptionCreationOverride"),
        namespace="autoSubscriptionCreation",
        topic="autoSubscriptionCreation",
        dump="autoSubscriptionCreationOverride",
        verb="auto-subscription-creation",
        applied=lambda policies: {"allowAutoSubscriptionCreation": policies.auto_subscription_creation},
    ),
    PolicyField(
        proto="inactive_topics",
        kind=INACTIVE_TOPICS,
        namespace="inactiveTopicPolicies",
        topic="inactiveTopicPolicies",
        dump="inactive_topic_policies",
        verb="inactive-topic-policies",
        applied=lambda policies: {
            "inactiveTopicDeleteMode": Policies.InactiveMode.Name(policies.inactive_mode).lower(),
            "maxInactiveDurationSeconds": policies.inactive_s,
            "deleteWhileInactive": policies.inactive_delete,
        },
    ),
    PolicyField(
        proto="delayed_delivery",
        kind=DELAYED_DELIVERY,
        namespace="delayedDelivery",
        topic="delayedDelivery",
        dump="delayed_delivery_policies",
        verb="delayed-delivery",
        applied=lambda policies: {
            "tickTime": policies.delayed_delivery_tick_ms,
            "active": policies.delayed_delivery_active,
            "maxDeliveryDelayInMillis": policies.delayed_delivery_max_delay_ms,
        },
    ),
    PolicyField(
        proto="encryption_required",
        kind=FLAG,
        namespace="encryptionRequired",
        dump="encryption_required",
        unset=False,
        never_removed=True,
        verb="encryption-required",
    ),
    PolicyField(
        proto="subscription_types",
        kind=TypeNames(),
        namespace="subscriptionTypesEnabled",
        topic="subscriptionTypesEnabled",
        dump="subscription_types_enabled",
        unset_is_204=True,
        unset=[],
        verb="subscription-types-enabled",
    ),
    PolicyField(
        proto="persistence",
        kind=PERSISTENCE,
        namespace="persistence",
        topic="persistence",
        dump="persistence",
        verb="persistence",
    ),
)
