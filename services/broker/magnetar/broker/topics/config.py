"""Configuration of topic creation, publishing and deduplication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from magnetar.broker.policies.config import PolicyConfig
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishConfig:
    """Limits on messages from producers."""

    message_bytes_max: int = setting(
        5 * 1024 * 1024,
        "Maximum bytes of the payload of a message or batch.",
        key="maxMessageSize",
        minimum=1,
    )
    connection_pending_bytes_max: int = setting(
        16 * 1024 * 1024,
        "Unconfirmed publish bytes of one connection at which the broker stops reading it; reading "
        "resumes at half.",
        key="magnetarPublishPendingBytesMaxPerConnection",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Topic domains, automatic creation, and limits of lookups and loads."""

    auto_creation: bool = setting(
        True,
        "Create a topic automatically when a producer, consumer or reader first uses it.",
        key="allowAutoTopicCreation",
    )
    auto_subscription_creation: bool = setting(
        True,
        "Create a subscription automatically when its first consumer connects.",
        key="allowAutoSubscriptionCreation",
    )
    persistent_enabled: bool = setting(True, "Enable persistent topics.", key="enablePersistentTopics")
    non_persistent_enabled: bool = setting(
        True, "Enable non-persistent topics.", key="enableNonPersistentTopics"
    )
    non_persistent_in_process_max: int = setting(
        1_000,
        "Maximum messages or batches to non-persistent topics in process per connection; excess ones are "
        "dropped.",
        key="maxConcurrentNonPersistentMessagePerConnection",
        minimum=1,
    )
    pattern_evaluation: bool = setting(
        True,
        "Match topic patterns in the broker, and notify clients of created and deleted topics that match.",
        key="enableBrokerSideSubscriptionPatternEvaluation",
    )
    pattern_length_max: int = setting(
        50,
        "Maximum characters of a topic pattern, without its domain; clients match longer ones themselves.",
        key="subscriptionPatternMaxLength",
        minimum=0,
    )
    lookups_max: int = setting(
        50_000,
        "Maximum lookup requests in process; further ones get TooManyRequests.",
        key="maxConcurrentLookupRequest",
        minimum=1,
    )
    loads_max: int = setting(
        5_000,
        "Maximum topics loading at once; further ones get TooManyRequests.",
        key="maxConcurrentTopicLoadRequest",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicationConfig:
    """Settings of deduplication."""

    enabled: bool = setting(
        False,
        "Enable deduplication: a message whose sequence id is already stored for its producer name is "
        "acknowledged but not stored again.",
        key="brokerDeduplicationEnabled",
    )
    snapshot_entries: int = setting(
        1_000,
        "Entries of a topic between two deduplication snapshots; entries after the last snapshot are "
        "read when the topic is loaded.",
        key="brokerDeduplicationEntriesInterval",
        minimum=1,
    )
    snapshot_interval_s: int = setting(
        120,
        "Maximum seconds from an entry to the next deduplication snapshot of its topic.",
        key="brokerDeduplicationSnapshotIntervalSeconds",
        minimum=1,
    )
    producers_max: int = setting(
        10_000,
        "Maximum producer names per topic in the deduplication state: all connected ones, and the most "
        "recently active others.",
        key="brokerDeduplicationMaxNumberOfProducers",
        minimum=1,
    )
    inactivity_min: int = setting(
        360,
        "Minutes of inactivity after which a disconnected producer name is removed from the "
        "deduplication state.",
        key="brokerDeduplicationProducerInactivityTimeoutMinutes",
        minimum=1,
    )


class TopicSettings(Protocol):
    """The parts of a broker's configuration that its topics read; `BrokerConfig` has them all."""

    @property
    def cluster_name(self) -> str: ...

    @property
    def publish(self) -> PublishConfig: ...

    @property
    def dispatch(self) -> DispatchConfig: ...

    @property
    def topics(self) -> TopicConfig: ...

    @property
    def deduplication(self) -> DeduplicationConfig: ...

    @property
    def transactions(self) -> TransactionConfig: ...

    @property
    def policies(self) -> PolicyConfig: ...
