"""Broker configuration of policies: defaults where neither a topic nor its namespace sets one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.schemas.config import SchemaConfig
from magnetar.common.config.settings import setting
from magnetar.ledger.compacted.settings import CompactionLimits

SERVICE_FACTORY: Final = "org.apache.pulsar.compaction.PulsarCompactionServiceFactory"
"""The only compaction service, by the name of Pulsar's class for it."""

SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """Retention of messages, acknowledged or not."""

    time_min: int = setting(
        0,
        "Minutes that acknowledged messages are retained; -1 is unlimited. Both retention limits must "
        "allow a ledger's deletion.",
        key="defaultRetentionTimeInMinutes",
        minimum=-1,
    )
    size_mb: int = setting(
        0,
        "Maximum megabytes of acknowledged messages that a topic retains; -1 is unlimited.",
        key="defaultRetentionSizeInMB",
        minimum=-1,
    )
    check_interval_s: int = setting(
        120,
        "Seconds between two checks for ledgers to trim.",
        key="retentionCheckIntervalInSeconds",
        minimum=1,
    )
    ttl_s: int = setting(
        0,
        "Time to live of unacknowledged messages, in seconds: after it, a message counts as "
        "acknowledged. 0 disables it.",
        key="ttlDurationDefaultInSeconds",
        minimum=0,
    )
    expiry_check_interval_min: int = setting(
        5,
        "Minutes between two checks for expired messages.",
        key="messageExpiryCheckIntervalInMinutes",
        minimum=1,
    )
    expiry_check_interval_s: int = setting(
        0,
        "Seconds between two checks for expired messages, for tests and short-lived data; 0 uses "
        "messageExpiryCheckIntervalInMinutes.",
        key="magnetarMessageExpiryCheckIntervalInSeconds",
        minimum=0,
    )
    subscription_expiration_min: int = setting(
        0,
        "Minutes after which a subscription without consumers is deleted; 0 disables it.",
        key="subscriptionExpirationTimeMinutes",
        minimum=0,
    )
    subscription_expiry_check_interval_min: int = setting(
        5,
        "Minutes between two checks for expired subscriptions.",
        key="subscriptionExpiryCheckIntervalInMinutes",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaConfig:
    """Backlog quotas of topics, and the action beyond them."""

    check_enabled: bool = setting(True, "Enforce backlog quotas.", key="backlogQuotaCheckEnabled")
    check_interval_s: int = setting(
        60,
        "Seconds between two backlog quota checks.",
        key="backlogQuotaCheckIntervalInSeconds",
        minimum=1,
    )
    limit_bytes: int = setting(
        -1,
        "Maximum bytes of a topic's backlog; -1 is no limit.",
        key="backlogQuotaDefaultLimitBytes",
        minimum=-1,
    )
    limit_s: int = setting(
        -1,
        "Maximum age in seconds of the oldest message in a backlog; -1 is no limit.",
        key="backlogQuotaDefaultLimitSecond",
        minimum=-1,
    )
    policy: str = setting(
        "producer_request_hold",
        "Action beyond a backlog quota: hold producers, fail producers, or evict the backlog of the "
        "slowest subscriptions.",
        key="backlogQuotaDefaultRetentionPolicy",
        choices=("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateConfig:
    """Dispatch, publish and subscribe rates; 0 is no limit."""

    topic_dispatch_messages: int = setting(
        0,
        "Dispatch rate of a topic, all subscriptions together, in messages per second.",
        key="dispatchThrottlingRatePerTopicInMsg",
        minimum=-1,
    )
    topic_dispatch_bytes: int = setting(
        0,
        "Dispatch rate of a topic, all subscriptions together, in bytes per second.",
        key="dispatchThrottlingRatePerTopicInByte",
        minimum=-1,
    )
    subscription_dispatch_messages: int = setting(
        0,
        "Dispatch rate of one subscription, in messages per second.",
        key="dispatchThrottlingRatePerSubscriptionInMsg",
        minimum=-1,
    )
    subscription_dispatch_bytes: int = setting(
        0,
        "Dispatch rate of one subscription, in bytes per second.",
        key="dispatchThrottlingRatePerSubscriptionInByte",
        minimum=-1,
    )
    broker_dispatch_messages: int = setting(
        0,
        "Dispatch rate of the whole broker, in messages per second.",
        key="dispatchThrottlingRateInMsg",
        minimum=-1,
    )
    broker_dispatch_bytes: int = setting(
        0,
        "Dispatch rate of the whole broker, in bytes per second.",
        key="dispatchThrottlingRateInByte",
        minimum=-1,
    )
    relative_to_publish_rate: bool = setting(
        False,
        "Add the topic's publish rate to its dispatch rates.",
        key="dispatchThrottlingRateRelativeToPublishRate",
    )
    counts_batches: bool = setting(
        False,
        "Count a batch as one message in dispatch rates.",
        key="dispatchThrottlingOnBatchMessageEnabled",
    )
    without_backlog: bool = setting(
        True,
        "Apply dispatch rates to consumers without a backlog, too.",
        key="dispatchThrottlingOnNonBacklogConsumerEnabled",
    )
    topic_publish_messages: int = setting(
        0,
        "Publish rate of a topic, in messages per second.",
        key="maxPublishRatePerTopicInMessages",
        minimum=-1,
    )
    topic_publish_bytes: int = setting(
        0, "Publish rate of a topic, in bytes per second.", key="maxPublishRatePerTopicInBytes", minimum=-1
    )
    broker_publish_messages: int = setting(
        0,
        "Publish rate of the whole broker, in messages per second.",
        key="brokerPublisherThrottlingMaxMessageRate",
        minimum=-1,
    )
    broker_publish_bytes: int = setting(
        0,
        "Publish rate of the whole broker, in bytes per second.",
        key="brokerPublisherThrottlingMaxByteRate",
        minimum=-1,
    )
    subscribes_per_consumer: int = setting(
        0,
        "Maximum subscribe requests of one consumer per period.",
        key="subscribeThrottlingRatePerConsumer",
        minimum=-1,
    )
    subscribe_period_s: int = setting(
        30,
        "Period of the subscribe rate, in seconds.",
        key="subscribeRatePeriodPerConsumerInSecond",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """Maximum numbers of producers, consumers, subscriptions and topics; 0 is no limit."""

    producers_per_topic_max: int = setting(
        0, "Maximum producers of a topic.", key="maxProducersPerTopic", minimum=0
    )
    producers_same_address_max: int = setting(
        0,
        "Maximum producers of a topic from one client address.",
        key="maxSameAddressProducersPerTopic",
        minimum=0,
    )
    consumers_per_topic_max: int = setting(
        0, "Maximum consumers of a topic.", key="maxConsumersPerTopic", minimum=0
    )
    consumers_same_address_max: int = setting(
        0,
        "Maximum consumers of a topic from one client address.",
        key="maxSameAddressConsumersPerTopic",
        minimum=0,
    )
    consumers_per_subscription_max: int = setting(
        0, "Maximum consumers of a subscription.", key="maxConsumersPerSubscription", minimum=0
    )
    subscriptions_per_topic_max: int = setting(
        0, "Maximum subscriptions of a topic.", key="maxSubscriptionsPerTopic", minimum=0
    )
    topics_per_namespace_max: int = setting(
        0, "Maximum topics of a namespace; each partition counts.", key="maxTopicsPerNamespace", minimum=0
    )
    encryption_required: bool = setting(
        False, "Accept only producers that encrypt their messages.", key="encryptionRequireOnProducer"
    )
    subscription_types: tuple[str, ...] = setting(
        SUBSCRIPTION_TYPES,
        "Enabled subscription types.",
        key="subscriptionTypesEnabled",
        choices=SUBSCRIPTION_TYPES,
    )
    key_shared_enabled: bool = setting(
        True, "Enable Key_Shared subscriptions.", key="subscriptionKeySharedEnable"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InactiveTopicConfig:
    """Configures the deletion of inactive topics."""

    enabled: bool = setting(True, "Delete inactive topics.", key="brokerDeleteInactiveTopicsEnabled")
    mode: str = setting(
        "delete_when_no_subscriptions",
        "Condition of inactivity: no producers and no subscriptions, or no producers, no backlog and no "
        "consumers.",
        key="brokerDeleteInactiveTopicsMode",
        choices=("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    )
    delete_partitioned_metadata: bool = setting(
        False,
        "Delete a partitioned topic when its last partition is deleted as inactive.",
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
        "Seconds of inactivity before a topic is deleted; 0 means the check interval.",
        key="brokerDeleteInactiveTopicsMaxInactiveDurationSeconds",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedDeliveryConfig:
    """Settings of delayed delivery."""

    enabled: bool = setting(
        True,
        "Enable delayed delivery: deliver messages at their deliver_at time.",
        key="delayedDeliveryEnabled",
    )
    tick_ms: int = setting(
        1_000,
        "Longest sleep of the delayed-delivery timer, in milliseconds: it bounds how late a change of "
        "the clock is detected. Each message is delivered at its own time (Pulsar: up to one tick early, "
        "or late when strict).",
        key="delayedDeliveryTickTimeMillis",
        minimum=1,
    )
    strict: bool = setting(
        False,
        "Never deliver before the deliver_at time. This broker never delivers early, with or without "
        "this setting.",
        key="isDelayedDeliveryDeliverAtTimeStrict",
    )
    max_delay_ms: int = setting(
        0, "Maximum delay in milliseconds; 0 is no limit.", key="delayedDeliveryMaxDelayInMillis", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreationConfig:
    """Configures the automatic creation of topics."""

    type: str = setting(
        "non-partitioned",
        "Type of automatically created topics.",
        key="allowAutoTopicCreationType",
        choices=("non-partitioned", "partitioned"),
    )
    partitions: int = setting(
        1,
        "Number of partitions of an automatically created partitioned topic.",
        key="defaultNumPartitions",
        minimum=1,
    )
    partitions_max: int = setting(
        0,
        "Maximum partitions of a topic; 0 is no limit.",
        key="maxNumPartitionsPerPartitionedTopic",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Compaction of topics: when it runs by itself, and what one run may use."""

    threshold_bytes: int = setting(
        0,
        "Bytes of a topic that were not compacted yet beyond which it is compacted by itself; while that "
        "is set, messages are not deleted before they were compacted. 0: only on request.",
        key="brokerServiceCompactionThresholdInBytes",
        minimum=0,
    )
    monitor_interval_s: int = setting(
        60,
        "Seconds between two checks of loaded topics for their compaction thresholds.",
        key="brokerServiceCompactionMonitorIntervalInSeconds",
        minimum=1,
    )
    retain_null_key: bool = setting(
        False,
        "Keep messages without a key in compacted views; otherwise they are left out.",
        key="topicCompactionRetainNullKey",
    )
    service_factory: str = setting(
        SERVICE_FACTORY,
        "Compaction service. Only Pulsar's own is accepted: the last message of a key is the one with the "
        "highest position.",
        key="compactionServiceFactoryClassName",
        choices=(SERVICE_FACTORY,),
    )
    runs_max: int = setting(
        1,
        "Maximum compactions of a broker at a time; further ones wait.",
        key="magnetarCompactionRunsMax",
        minimum=1,
    )
    limits: CompactionLimits = field(default_factory=CompactionLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """All settings of policies."""

    of_topics: bool = setting(
        True,
        "Enable topic-level policies. When false, calls to read or change them are refused, and stored "
        "ones have no effect.",
        key="topicLevelPoliciesEnabled",
    )
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    rates: RateConfig = field(default_factory=RateConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    inactive_topics: InactiveTopicConfig = field(default_factory=InactiveTopicConfig)
    delayed_delivery: DelayedDeliveryConfig = field(default_factory=DelayedDeliveryConfig)
    topic_creation: TopicCreationConfig = field(default_factory=TopicCreationConfig)
    schemas: SchemaConfig = field(default_factory=SchemaConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)


class PublishDefaults(Protocol):
    """Broker limits on publishing that no policy may exceed."""

    @property
    def message_bytes_max(self) -> int: ...


class UnackedDefaults(Protocol):
    """Limits of unacknowledged messages."""

    @property
    def consumer_unacked_max(self) -> int: ...

    @property
    def subscription_unacked_max(self) -> int: ...


class CreationDefaults(Protocol):
    """Automatic creation of topics and subscriptions."""

    @property
    def auto_creation(self) -> bool: ...

    @property
    def auto_subscription_creation(self) -> bool: ...


class DeduplicationDefaults(Protocol):
    """Defaults of deduplication and of its snapshot interval."""

    @property
    def enabled(self) -> bool: ...

    @property
    def snapshot_interval_s(self) -> int: ...


class PolicyDefaults(Protocol):
    """The parts of a broker's configuration that provide defaults of policies; `BrokerConfig` has them
    all.
    """

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
