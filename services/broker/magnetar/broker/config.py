"""The broker's configuration, nested by concept. Keys and defaults are Pulsar's unless the text says why.

Rooms below declare the sections that they read; `BrokerConfig` puts all sections together. The sections that
are declared here are read by the edges alone: the admin API and the metrics page.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.memory_config import MemoryConfig
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.policies.config import PolicyConfig
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.topics.config import DeduplicationConfig, PublishConfig, TopicConfig
from magnetar.common.cluster.bundles import ALGORITHMS, EQUAL_RANGES
from magnetar.common.config.settings import setting
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.security.tls.config import TlsConfig


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
    """Settings of deletions with content."""

    force_namespaces: bool = setting(
        False,
        "Namespaces may be deleted with their topics, also while clients use these.",
        key="forceDeleteNamespaceAllowed",
    )
    force_tenants: bool = setting(
        False, "Tenants may be deleted with their namespaces.", key="forceDeleteTenantAllowed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Settings of the metrics page."""

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
    tls: TlsConfig = field(default_factory=TlsConfig)
    broker_client: BrokerClientConfig = field(default_factory=BrokerClientConfig)
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
