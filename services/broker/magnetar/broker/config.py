"""The broker's configuration, nested by concept. Keys and defaults are Pulsar's unless a text gives a reason.

Packages below declare the sections that they read; `BrokerConfig` combines all sections. The sections
declared here are read only by the admin API and the metrics page.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.memory_config import MemoryConfig
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.policies.config import PolicyConfig
from magnetar.broker.schemas.config import schema_problems
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.topics.config import DeduplicationConfig, PublishConfig, TopicConfig
from magnetar.broker.transaction_config import TransactionConfig
from magnetar.common.cluster.bundles import ALGORITHMS, EQUAL_RANGES
from magnetar.common.config.settings import setting
from magnetar.common.security.audit_config import AuditConfig
from magnetar.common.security.authentication.config import AuthenticationConfig
from magnetar.common.security.authorization.config import AuthorizationConfig, authorization_problems
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.security.tls.config import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogScanConfig:
    """Limits of a backlog analysis, which reads every entry of a backlog."""

    entries_max: int = setting(
        10_000,
        "Maximum entries that one backlog analysis reads.",
        key="subscriptionBacklogScanMaxEntries",
        minimum=1,
    )
    time_max_ms: int = setting(
        120_000,
        "Maximum milliseconds that one backlog analysis takes.",
        key="subscriptionBacklogScanMaxTimeMs",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionConfig:
    """Settings of recursive deletions."""

    force_namespaces: bool = setting(
        False,
        "Allow deleting a namespace together with its topics, even while clients use them.",
        key="forceDeleteNamespaceAllowed",
    )
    force_tenants: bool = setting(
        False, "Allow deleting a tenant together with its namespaces.", key="forceDeleteTenantAllowed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Settings of the metrics page."""

    topic_level: bool = setting(
        True,
        "Publish metrics per topic and subscription; when false, per namespace.",
        key="exposeTopicLevelMetricsInPrometheus",
    )
    consumer_level: bool = setting(
        False,
        "Also publish metrics per consumer; needs metrics per topic.",
        key="exposeConsumerLevelMetricsInPrometheus",
    )
    producer_level: bool = setting(
        False,
        "Also publish metrics per producer; needs metrics per topic.",
        key="exposeProducerLevelMetricsInPrometheus",
    )
    managed_ledgers: bool = setting(
        True,
        "Publish metrics of managed ledgers per namespace.",
        key="exposeManagedLedgerMetricsInPrometheus",
    )
    split_partition: bool = setting(
        False,
        "Label a partition's metrics with its partitioned topic's name and, in a separate label, its "
        "partition number; -1 for a topic that is not a partition.",
        key="splitTopicAndPartitionLabelInPrometheus",
    )
    rates_period_s: int = setting(
        60,
        "Averaging period, in seconds, of the message and byte rates in statistics and load reports.",
        key="statsUpdateFrequencyInSecs",
        minimum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleConfig:
    """Bundle splits that operators request; automatic splits have their own settings."""

    split_algorithm: str = setting(
        EQUAL_RANGES,
        "Split algorithm of a bundle split request that names none.",
        key="defaultNamespaceBundleSplitAlgorithm",
        choices=ALGORITHMS,
    )
    split_algorithms: tuple[str, ...] = setting(
        ALGORITHMS,
        "Split algorithms that a bundle split request may name.",
        key="supportedNamespaceBundleSplitAlgorithms",
        choices=ALGORITHMS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings of a broker."""

    cluster_name: str = setting(
        "standalone", "Name of the cluster this broker belongs to.", key="clusterName"
    )
    shutdown_timeout_ms: int = setting(
        60_000,
        "Maximum milliseconds of a clean shutdown; after that, the process ends anyway.",
        key="brokerShutdownTimeoutMs",
        minimum=0,
    )
    listener: ListenerConfig = field(default_factory=ListenerConfig)
    authentication: AuthenticationConfig = field(default_factory=AuthenticationConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    broker_client: BrokerClientConfig = field(default_factory=BrokerClientConfig)
    publish: PublishConfig = field(default_factory=PublishConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    dispatch: DispatchConfig = field(default_factory=DispatchConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    topics: TopicConfig = field(default_factory=TopicConfig)
    bundles: BundleConfig = field(default_factory=BundleConfig)
    deduplication: DeduplicationConfig = field(default_factory=DeduplicationConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    policies: PolicyConfig = field(default_factory=PolicyConfig)
    backlog_scan: BacklogScanConfig = field(default_factory=BacklogScanConfig)
    deletion: DeletionConfig = field(default_factory=DeletionConfig)
    orphans: OrphanConfig = field(default_factory=OrphanConfig)
    offload: OffloadConfig = field(default_factory=OffloadConfig)
    authorization: AuthorizationConfig = field(default_factory=AuthorizationConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    proxy_protocol: ProxyProtocolConfig = field(default_factory=ProxyProtocolConfig)

    def problems(self) -> list[str]:
        """Return contradictions between settings that are each valid."""
        return [
            *authorization_problems(self.authentication.enabled, self.authorization),
            *self.proxy_protocol.problems(),
            *schema_problems(self.policies.schemas),
        ]
