"""The broker's configuration, nested by concept. Keys and defaults are Pulsar's unless the text says why."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.policies.config import PolicyConfig
from magnetar.common.cluster.bundles import ALGORITHMS, EQUAL_RANGES
from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """Where clients connect."""

    bind_address: str = setting(
        "127.0.0.1",
        "Address to listen on. Loopback unless told otherwise (Pulsar: 0.0.0.0); images set 0.0.0.0.",
        key="bindAddress",
    )
    advertised_address: str = setting(
        "", "Host name that lookups tell clients; empty means the bind address.", key="advertisedAddress"
    )
    advertised_listeners: str = setting(
        "",
        "Where clients that name a listener are sent: NAME:pulsar://HOST:PORT,... and NAME:pulsar+ssl://..., "
        "NAME:http://... likewise. In place of advertisedAddress.",
        key="advertisedListeners",
    )
    internal_listener_name: str = setting(
        "",
        "The advertised listener for clients that name none, and for other brokers; empty means the first.",
        key="internalListenerName",
    )
    broker_service_port: int = setting(
        6650, "Port of the binary protocol; 0 picks a free one.", key="brokerServicePort", minimum=0
    )
    web_service_port: int = setting(
        8080, "Port of HTTP: admin API, metrics, health; 0 picks a free one.", key="webServicePort", minimum=0
    )
    keep_alive_interval_s: int = setting(
        30,
        "Seconds of silence after which a connection is pinged, and again until it is closed.",
        key="keepAliveIntervalSeconds",
        minimum=1,
    )
    liveness_check_timeout_ms: int = setting(
        5_000,
        "Milliseconds to wait for a sign of life of an existing holder before a newcomer is refused.",
        key="connectionLivenessCheckTimeoutMillis",
        minimum=0,
    )
    connections_max: int = setting(
        0, "Connections accepted at once; 0 is no limit.", key="brokerMaxConnections", minimum=0
    )


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
class MemoryConfig:
    """How many message bytes the process may hold."""

    budget_megabytes: int = setting(
        256,
        "Megabytes of messages held at once: unconfirmed publishes, reads, unsent output, and the tail cache "
        "with what these leave. When it is spent, producers and reads wait.",
        key="magnetarMemoryBudgetMB",
        minimum=1,
    )
    pending_publish_megabytes_max: int = setting(
        64,
        "Unconfirmed publish megabytes of the whole broker at which publishing connections are not read on.",
        key="maxMessagePublishBufferSizeInMB",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """How messages go out."""

    read_entries_max: int = setting(
        1_000,
        "Entries read from storage for one subscription at a time.",
        key="dispatcherMaxReadBatchSize",
        minimum=1,
    )
    read_bytes_max: int = setting(
        5 * 1024 * 1024,
        "Bytes read from storage for one subscription at a time.",
        key="dispatcherMaxReadSizeBytes",
        minimum=1,
    )
    round_robin_entries_max: int = setting(
        20,
        "Entries a consumer of a Shared subscription gets before the next one's turn.",
        key="dispatcherMaxRoundRobinBatchSize",
        minimum=1,
    )
    consumer_unacked_max: int = setting(
        50_000,
        "Unacknowledged messages of one Shared or Key_Shared consumer at which it gets no more, until half. "
        "0: no limit.",
        key="maxUnackedMessagesPerConsumer",
        minimum=0,
    )
    subscription_unacked_max: int = setting(
        200_000,
        "Unacknowledged messages of one Shared or Key_Shared subscription at which it pauses, until half. "
        "0: no limit.",
        key="maxUnackedMessagesPerSubscription",
        minimum=0,
    )
    broker_unacked_max: int = setting(
        0,
        "Unacknowledged messages of all Shared and Key_Shared subscriptions of this broker at which those "
        "with many of them pause, until half. 0: no limit.",
        key="maxUnackedMessagesPerBroker",
        minimum=0,
    )
    subscription_share_of_broker_unacked: float = setting(
        0.16,
        "Part of that limit which one subscription may hold while the broker is at it; one with more pauses "
        "until half. 0: the broker has no limit.",
        key="maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        minimum=0,
        maximum=1,
    )
    failover_delay_ms: int = setting(
        1_000,
        "Milliseconds between a change of the active consumer of a Failover subscription and the first "
        "message to it, in which acknowledgements of the former one still arrive.",
        key="activeConsumerFailoverDelayTimeMillis",
        minimum=0,
    )
    failover_consistent_hashing: bool = setting(
        False,
        "Choose the active consumer of a partition by hashing, as for topics without partitions, and not by "
        "the partition's number.",
        key="activeConsumerFailoverConsistentHashing",
    )
    key_shared_consistent_hashing: bool = setting(
        True,
        "Divide the slots of Key_Shared subscriptions by consistent hashing; else each consumer has one "
        "range and a newcomer halves the largest.",
        key="subscriptionKeySharedUseConsistentHashing",
    )
    key_shared_points: int = setting(
        100,
        "Points of each Key_Shared consumer on the ring of consistent hashing.",
        key="subscriptionKeySharedConsistentHashingReplicaPoints",
        minimum=1,
    )
    look_ahead_per_consumer: int = setting(
        2_000,
        "Entries that may wait on a Key_Shared subscription for consumers that cannot take them or for slots "
        "that drain, for each consumer, while others are looked for. 0: no such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerConsumer",
        minimum=0,
    )
    look_ahead_per_subscription: int = setting(
        20_000,
        "The same for the whole subscription. 0: no such limit.",
        key="keySharedLookAheadMsgInReplayThresholdPerSubscription",
        minimum=0,
    )
    write_buffer_bytes_max: int = setting(
        1024 * 1024,
        "Bytes waiting in a connection's socket buffer at which dispatch to it pauses; resumes at half.",
        key="magnetarWriteBufferBytesMax",
        minimum=1,
    )
    batch_index_ack_enabled: bool = setting(
        True,
        "Remember which messages of a batch are acknowledged (Pulsar: false; on here because half a batch "
        "coming back surprises everyone).",
        key="acknowledgmentAtBatchIndexLevelEnabled",
    )
    expose_broker_entry_metadata: bool = setting(
        False,
        "Send broker publish time and message index to clients that announced that they understand them.",
        key="exposingBrokerEntryMetadataToClientEnabled",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogScanConfig:
    """How long a look at every entry of a backlog may be."""

    entries_max: int = setting(
        10_000,
        "Entries that one analysis of a backlog looks at.",
        key="subscriptionBacklogScanMaxEntries",
        minimum=1,
    )
    time_max_ms: int = setting(
        120_000,
        "Milliseconds that one analysis of a backlog may take.",
        key="subscriptionBacklogScanMaxTimeMs",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionConfig:
    """What may be deleted with everything in it."""

    force_namespaces: bool = setting(
        False,
        "Namespaces may be deleted with their topics, whoever uses these.",
        key="forceDeleteNamespaceAllowed",
    )
    force_tenants: bool = setting(
        False, "Tenants may be deleted with their namespaces.", key="forceDeleteTenantAllowed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanConfig:
    """What is left in metadata although nothing names it any more."""

    check_interval_s: int = setting(
        3_600,
        "Seconds between two looks through metadata for orphans.",
        key="magnetarOrphanCheckIntervalSeconds",
        minimum=1,
    )
    age_min_s: int = setting(
        1_800,
        "Seconds for which something must have been an orphan, at two looks at least, before it is cleared.",
        key="magnetarOrphanAgeMinSeconds",
        minimum=0,
    )
    clear: bool = setting(
        True,
        "Clear orphans after each look; else only when an operator says so.",
        key="magnetarOrphanClearingEnabled",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """What the metrics page shows."""

    topic_level: bool = setting(
        True,
        "Show figures of each topic and subscription; else of each namespace.",
        key="exposeTopicLevelMetricsInPrometheus",
    )
    consumer_level: bool = setting(
        False,
        "Show figures of each consumer, too, where those of each topic are shown.",
        key="exposeConsumerLevelMetricsInPrometheus",
    )
    producer_level: bool = setting(
        False,
        "Show figures of each producer, too, where those of each topic are shown.",
        key="exposeProducerLevelMetricsInPrometheus",
    )
    managed_ledgers: bool = setting(
        True,
        "Show figures of managed ledgers, of each namespace.",
        key="exposeManagedLedgerMetricsInPrometheus",
    )
    split_partition: bool = setting(
        False,
        "Label a partition's figures with its topic's name and, apart, its number; -1 for none.",
        key="splitTopicAndPartitionLabelInPrometheus",
    )
    rates_period_s: int = setting(
        60,
        "Seconds over which rates are averages: of messages and bytes a second, in statistics and as load.",
        key="statsUpdateFrequencyInSecs",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleConfig:
    """How bundles are split for who asks; those with too much are split where it balances."""

    split_algorithm: str = setting(
        EQUAL_RANGES,
        "Where a bundle is cut when who asks for it does not say.",
        key="defaultNamespaceBundleSplitAlgorithm",
        choices=ALGORITHMS,
    )
    split_algorithms: tuple[str, ...] = setting(
        ALGORITHMS,
        "Ways to say where a bundle is cut that may be asked for.",
        key="supportedNamespaceBundleSplitAlgorithms",
        choices=ALGORITHMS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything a broker can be told."""

    cluster_name: str = setting(
        "standalone", "Name of the cluster this broker belongs to.", key="clusterName"
    )
    shutdown_timeout_ms: int = setting(
        60_000,
        "Milliseconds that a clean shutdown may take before the process ends anyway.",
        key="brokerShutdownTimeoutMs",
        minimum=0,
    )
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    publish: PublishConfig = field(default_factory=PublishConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    dispatch: DispatchConfig = field(default_factory=DispatchConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    topics: TopicConfig = field(default_factory=TopicConfig)
    bundles: BundleConfig = field(default_factory=BundleConfig)
    deduplication: DeduplicationConfig = field(default_factory=DeduplicationConfig)
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    backlog_scan: BacklogScanConfig = field(default_factory=BacklogScanConfig)
    deletion: DeletionConfig = field(default_factory=DeletionConfig)
    orphans: OrphanConfig = field(default_factory=OrphanConfig)
    offload: OffloadConfig = field(default_factory=OffloadConfig)
