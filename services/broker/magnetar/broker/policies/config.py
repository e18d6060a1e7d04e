"""Broker configuration of policies: defaults where neither a topic nor its namespace sets one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.config.settings import setting

SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How long messages are kept, acknowledged or not."""

    time_min: int = setting(
        0,
        "Minutes that acknowledged messages are kept; -1 is for ever. Both limits have to hold.",
        key="defaultRetentionTimeInMinutes",
        minimum=-1,
    )
    size_mb: int = setting(
        0,
        "Megabytes of acknowledged messages that a topic keeps; -1 is without bound.",
        key="defaultRetentionSizeInMB",
        minimum=-1,
    )
    check_interval_s: int = setting(
        120,
        "Seconds between two looks for ledgers to let go.",
        key="retentionCheckIntervalInSeconds",
        minimum=1,
    )
    ttl_s: int = setting(
        0,
        "Seconds after which an unacknowledged message counts as acknowledged; 0 is never.",
        key="ttlDurationDefaultInSeconds",
        minimum=0,
    )
    expiry_check_interval_min: int = setting(
        5,
        "Minutes between two looks for messages that have expired.",
        key="messageExpiryCheckIntervalInMinutes",
        minimum=1,
    )
    expiry_check_interval_s: int = setting(
        0,
        "The same in seconds, for tests and short-lived data; 0 leaves it to the minutes.",
        key="magnetarMessageExpiryCheckIntervalInSeconds",
        minimum=0,
    )
    subscription_expiration_min: int = setting(
        0,
        "Minutes after which a subscription without consumers is deleted; 0 is never.",
        key="subscriptionExpirationTimeMinutes",
        minimum=0,
    )
    subscription_expiry_check_interval_min: int = setting(
        5,
        "Minutes between two looks for subscriptions that have expired.",
        key="subscriptionExpiryCheckIntervalInMinutes",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """How much backlog a topic may have, and what happens beyond."""

    check_enabled: bool = setting(True, "Look after backlog quotas.", key="backlogQuotaCheckEnabled")
    check_interval_s: int = setting(
        60,
        "Seconds between two looks at backlogs.",
        key="backlogQuotaCheckIntervalInSeconds",
        minimum=1,
    )
    limit_bytes: int = setting(
        -1, "Bytes of backlog of a topic; -1 is no limit.", key="backlogQuotaDefaultLimitBytes", minimum=-1
    )
    limit_s: int = setting(
        -1,
        "Age in seconds of the oldest message in a backlog; -1 is no limit.",
        key="backlogQuotaDefaultLimitSecond",
        minimum=-1,
    )
    policy: str = setting(
        "producer_request_hold",
        "Beyond a quota: producers wait, producers fail, or the slowest subscriptions skip ahead.",
        key="backlogQuotaDefaultRetentionPolicy",
        choices=("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateConfig:
    """How fast messages may come and go; 0 is no limit."""

    topic_dispatch_messages: int = setting(
        0,
        "Messages a second that all subscriptions of a topic get.",
        key="dispatchThrottlingRatePerTopicInMsg",
        minimum=-1,
    )
    topic_dispatch_bytes: int = setting(
        0,
        "Bytes a second that all subscriptions of a topic get.",
        key="dispatchThrottlingRatePerTopicInByte",
        minimum=-1,
    )
    subscription_dispatch_messages: int = setting(
        0,
        "Messages a second that one subscription gets.",
        key="dispatchThrottlingRatePerSubscriptionInMsg",
        minimum=-1,
    )
    subscription_dispatch_bytes: int = setting(
        0,
        "Bytes a second that one subscription gets.",
        key="dispatchThrottlingRatePerSubscriptionInByte",
        minimum=-1,
    )
    broker_dispatch_messages: int = setting(
        0, "Messages a second that this broker sends.", key="dispatchThrottlingRateInMsg", minimum=-1
    )
    broker_dispatch_bytes: int = setting(
        0, "Bytes a second that this broker sends.", key="dispatchThrottlingRateInByte", minimum=-1
    )
    relative_to_publish_rate: bool = setting(
        False,
        "Dispatch rates are added to the rate at which the topic is published to.",
        key="dispatchThrottlingRateRelativeToPublishRate",
    )
    counts_batches: bool = setting(
        False,
        "A batch counts as one message in dispatch rates.",
        key="dispatchThrottlingOnBatchMessageEnabled",
    )
    without_backlog: bool = setting(
        True,
        "Dispatch rates hold for consumers that have caught up, too.",
        key="dispatchThrottlingOnNonBacklogConsumerEnabled",
    )
    topic_publish_messages: int = setting(
        0,
        "Messages a second that a topic takes.",
        key="maxPublishRatePerTopicInMessages",
        minimum=-1,
    )
    topic_publish_bytes: int = setting(
        0, "Bytes a second that a topic takes.", key="maxPublishRatePerTopicInBytes", minimum=-1
    )
    broker_publish_messages: int = setting(
        0,
        "Messages a second that this broker takes.",
        key="brokerPublisherThrottlingMaxMessageRate",
        minimum=-1,
    )
    broker_publish_bytes: int = setting(
        0, "Bytes a second that this broker takes.", key="brokerPublisherThrottlingMaxByteRate", minimum=-1
    )
    subscribes_per_consumer: int = setting(
        0,
        "Times that one consumer may subscribe in a period.",
        key="subscribeThrottlingRatePerConsumer",
        minimum=-1,
    )
    subscribe_period_s: int = setting(
        30, "Seconds of that period.", key="subscribeRatePeriodPerConsumerInSecond", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """How many of each a topic or namespace may have; 0 is no limit."""

    producers_per_topic_max: int = setting(0, "Producers of a topic.", key="maxProducersPerTopic", minimum=0)
    producers_same_address_max: int = setting(
        0, "Producers of a topic from one address.", key="maxSameAddressProducersPerTopic", minimum=0
    )
    consumers_per_topic_max: int = setting(0, "Consumers of a topic.", key="maxConsumersPerTopic", minimum=0)
    consumers_same_address_max: int = setting(
        0, "Consumers of a topic from one address.", key="maxSameAddressConsumersPerTopic", minimum=0
    )
    consumers_per_subscription_max: int = setting(
        0, "Consumers of a subscription.", key="maxConsumersPerSubscription", minimum=0
    )
    subscriptions_per_topic_max: int = setting(
        0, "Subscriptions of a topic.", key="maxSubscriptionsPerTopic", minimum=0
    )
    topics_per_namespace_max: int = setting(
        0, "Topics of a namespace, partitions counted.", key="maxTopicsPerNamespace", minimum=0
    )
    encryption_required: bool = setting(
        False, "Take messages from producers only that encrypt them.", key="encryptionRequireOnProducer"
    )
    subscription_types: tuple[str, ...] = setting(
        SUBSCRIPTION_TYPES,
        "Subscription types that may be used.",
        key="subscriptionTypesEnabled",
        choices=SUBSCRIPTION_TYPES,
    )
    key_shared_enabled: bool = setting(
        True, "Key_Shared subscriptions may be used.", key="subscriptionKeySharedEnable"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTopicConfig:
    """Configures the deletion of inactive topics."""

    enabled: bool = setting(True, "Delete inactive topics.", key="brokerDeleteInactiveTopicsEnabled")
    mode: str = setting(
        "delete_when_no_subscriptions",
        "Inactive: without producers, and without subscriptions, or without backlogs and consumers.",
        key="brokerDeleteInactiveTopicsMode",
        choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    )
    delete_partitioned_metadata: bool = setting(
        False,
        "Delete a partitioned topic with the last of its partitions that is deleted as inactive.",
        key="brokerDeleteInactivePartitionedTopicMetadataEnabled",
    )
    check_interval_s: int = setting(
        60,
        "Seconds between two checks for inactive topics.",
        key="brokerDeleteInactiveTopicsFrequencySeconds",
        minimum=1,
    )
    inactive_s: int = setting(
        0,
        "Seconds without use before a topic is deleted; 0 means the seconds between two looks.",
        key="brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedDeliveryConfig:
    """Messages that are delivered later."""

    enabled: bool = setting(True, "Deliver messages at their deliver_at time.", key="delayedDeliveryEnabled")
    tick_ms: int = setting(
        1_000,
        "Longest sleep of the timer of delayed messages, in milliseconds: a step of the clock is noticed "
        "within it. Each message goes out at its own time (Pulsar: up to one tick early, or late when it is "
        "strict).",
        key="delayedDeliveryTickTimeMillis",
        minimum=1,
    )
    strict: bool = setting(
        False,
        "Never deliver before the time. Nothing is early here, whether this is set or not.",
        key="isDelayedDeliveryDeliverAtTimeStrict",
    )
    max_delay_ms: int = setting(
        0, "Longest delay in milliseconds; 0 is no limit.", key="delayedDeliveryMaxDelayInMillis", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreationConfig:
    """Configures the automatic creation of topics."""

    type: str = setting(
        "non-partitioned",
        "Kind of a topic that is created because a client asks for it.",
        key="allowAutoTopicCreationType",
        choices=("non-partitioned", "partitioned"),
    )
    partitions: int = setting(
        1, "Partitions of a topic created as partitioned.", key="defaultNumPartitions", minimum=1
    )
    partitions_max: int = setting(
        0,
        "Most partitions of a topic; 0 is no limit.",
        key="maxNumPartitionsPerPartitionedTopic",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """All of the above."""

    of_topics: bool = setting(
        True,
        "Let topics have policies of their own. When false the calls about them are refused, and those that "
        "topics were given before do not hold.",
        key="topicLevelPoliciesEnabled",
    )
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    rates: RateConfig = field(default_factory=RateConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    inactive_topics: InactiveTopicConfig = field(default_factory=InactiveTopicConfig)
    delayed_delivery: DelayedDeliveryConfig = field(default_factory=DelayedDeliveryConfig)
    topic_creation: TopicCreationConfig = field(default_factory=TopicCreationConfig)


class PublishDefaults(Protocol):
    """The limits on publishing that no policy may exceed."""

    @property
    def message_bytes_max(self) -> int: ...


class UnackedDefaults(Protocol):
    """How many messages may be unacknowledged."""

    @property
    def consumer_unacked_max(self) -> int: ...

    @property
    def subscription_unacked_max(self) -> int: ...


class CreationDefaults(Protocol):
    """Whether clients create topics and subscriptions by using them."""

    @property
    def auto_creation(self) -> bool: ...

    @property
    def auto_subscription_creation(self) -> bool: ...


class DeduplicationDefaults(Protocol):
    """Whether topics deduplicate, and how often they write a snapshot."""

    @property
    def enabled(self) -> bool: ...

    @property
    def snapshot_interval_s(self) -> int: ...


class PolicyDefaults(Protocol):
    """The parts of a broker's configuration that hold without a policy; `BrokerConfig` has them all."""

    @property
    def cluster_name(self) -> str: ...

    @property
    def policies(self) -> PolicyConfig: ...

    @property
    def offload(self) -> OffloadConfig: ...

    @property
    def publish(self) -> PublishDefaults: ...

    @property
    def dispatch(self) -> UnackedDefaults: ...

    @property
    def topics(self) -> CreationDefaults: ...

    @property
    def deduplication(self) -> DeduplicationDefaults: ...
