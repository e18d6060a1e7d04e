"""How topics are created, published to and deduplicated, as configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from magnetar.broker.policies.config import PolicyConfig
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishConfig:
    """Limits on what producers send."""

    message_bytes_max: int = setting(
        5 * 1024 * 1024, "Largest payload of a message or batch, in bytes.", key="maxMessageSize", minimum=1
    )
    connection_pending_bytes_max: int = setting(
        16 * 1024 * 1024,
        "Unconfirmed publish bytes of one connection at which it is no longer read; read on at half.",
        key="magnetarPublishPendingBytesMaxPerConnection",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Which topics exist and how they come to be."""

    auto_creation: bool = setting(
        True,
        "Create a topic when the first producer, consumer or reader asks for it.",
        key="allowAutoTopicCreation",
    )
    auto_subscription_creation: bool = setting(
        True, "Create a subscription when its first consumer connects.", key="allowAutoSubscriptionCreation"
    )
    persistent_enabled: bool = setting(True, "Serve persistent topics.", key="enablePersistentTopics")
    non_persistent_enabled: bool = setting(
        True, "Serve non-persistent topics.", key="enableNonPersistentTopics"
    )
    non_persistent_in_process_max: int = setting(
        1_000,
        "Messages or batches to non-persistent topics that one connection may have in process; those beyond "
        "are dropped.",
        key="maxConcurrentNonPersistentMessagePerConnection",
        minimum=1,
    )
    pattern_evaluation: bool = setting(
        True,
        "Match patterns of topics for clients, and tell them when matching topics come and go.",
        key="enableBrokerSideSubscriptionPatternEvaluation",
    )
    pattern_length_max: int = setting(
        50,
        "Characters of a pattern of topics, its domain aside; longer ones are left to the client.",
        key="subscriptionPatternMaxLength",
        minimum=0,
    )
    lookups_max: int = setting(
        50_000,
        "Lookup requests in process at once; more get TooManyRequests.",
        key="maxConcurrentLookupRequest",
        minimum=1,
    )
    loads_max: int = setting(
        5_000,
        "Topics loading at once; more get TooManyRequests.",
        key="maxConcurrentTopicLoadRequest",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicationConfig:
    """How messages that were stored before are recognized."""

    enabled: bool = setting(
        False,
        "Store each message of a producer name once: one that is sent again, with a sequence id that is "
        "stored already, is acknowledged and not stored.",
        key="brokerDeduplicationEnabled",
    )
    snapshot_entries: int = setting(
        1_000,
        "Entries of a topic after which the sequence ids of its producers are written down; those after the "
        "last time are read when the topic is loaded.",
        key="brokerDeduplicationEntriesInterval",
        minimum=1,
    )
    snapshot_interval_s: int = setting(
        120,
        "Seconds after an entry within which the sequence ids of a topic's producers are written down.",
        key="brokerDeduplicationSnapshotIntervalSeconds",
        minimum=1,
    )
    producers_max: int = setting(
        10_000,
        "Producer names of a topic that are remembered, the latest active ones and all that are connected.",
        key="brokerDeduplicationMaxNumberOfProducers",
        minimum=1,
    )
    inactivity_min: int = setting(
        360,
        "Minutes after which a producer name is forgotten that is not connected.",
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
    def policies(self) -> PolicyConfig: ...
