"""What the HTTP edge and the metrics page need of a broker: the broker implements it, tests imitate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.bookie_racks import BookieRacks
from magnetar.broker.clusters import Clusters
from magnetar.broker.config import BrokerConfig
from magnetar.broker.deletions import Deletions
from magnetar.broker.dynamic_config import DynamicConfig
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.offload.sweep_schedule import SweepSchedule
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.resource_quotas import ResourceQuotas
from magnetar.broker.schemas import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.stats import SubscriptionStats, TopicStats
from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

if TYPE_CHECKING:  # a standalone has no use for it
    from magnetar.broker.control.bundle_moves import BundleMoves
    from magnetar.broker.control.remote_topics import TopicsElsewhere


class SubscriptionView(Protocol):
    """The figures of one subscription."""

    @property
    def stats(self) -> SubscriptionStats: ...

    @property
    def consumer_count(self) -> int: ...

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    @property
    def in_replay(self) -> int:
        """Entries that were looked at and wait to be delivered."""
        ...

    @property
    def unacked_messages(self) -> int: ...

    @property
    def blocked_on_unacked(self) -> bool: ...

    def backlog(self) -> int:
        """Entries not acknowledged."""
        ...

    @property
    def delayed(self) -> int:
        """Entries of these that wait for their time."""
        ...

    @property
    def acks_at_risk(self) -> int:
        """Entries that are acknowledged, and not on disk as such."""
        ...

    @property
    def mark_deleted_ms(self) -> int:
        """When its mark-delete position last moved on disk, ms since 1970 UTC; 0: not since the load."""
        ...


class TopicView(Protocol):
    """The figures of one loaded topic."""

    @property
    def name(self) -> TopicName: ...

    @property
    def stats(self) -> TopicStats: ...

    @property
    def producer_count(self) -> int: ...

    @property
    def producers(self) -> Mapping[str, Producer]: ...

    @property
    def times_rate_limited(self) -> int:
        """Times that a publish rate left a producer's connection unread."""
        ...

    @property
    def storage_bytes(self) -> int:
        """One copy of what is stored."""
        ...

    @property
    def copies(self) -> int:
        """Of each entry, as ledgers are made now; those from before may have others."""
        ...

    @property
    def storage_entries(self) -> int: ...

    @property
    def offloaded_bytes(self) -> int:
        """Of the stored bytes, those of ledgers that were offloaded."""
        ...

    @property
    def backlog_bytes(self) -> int: ...

    @property
    def delayed_index_bytes(self) -> int:
        """Memory of the index of delayed entries."""
        ...

    @property
    def oldest_backlog_age_s(self) -> int: ...

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionView]: ...


class BrokerView(Protocol):
    """One broker."""

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def namespaces(self) -> Namespaces: ...

    @property
    def topics(self) -> Mapping[str, TopicView]:
        """Loaded topics by full name."""
        ...

    @property
    def registry(self) -> TopicRegistry:
        """Topics as they are loaded, made and deleted."""
        ...

    @property
    def partitioned(self) -> PartitionedTopics: ...

    @property
    def policies(self) -> PolicyStore: ...

    @property
    def policy_writer(self) -> PolicyWriter: ...

    @property
    def tenancy(self) -> Tenancy: ...

    @property
    def schemas(self) -> SchemaStore: ...

    @property
    def deletions(self) -> Deletions: ...

    @property
    def orphans(self) -> Reconciler: ...

    @property
    def sweep(self) -> SweepSchedule: ...

    @property
    def clusters(self) -> Clusters: ...

    @property
    def bookie_racks(self) -> BookieRacks: ...

    @property
    def resource_quotas(self) -> ResourceQuotas: ...

    @property
    def dynamic_config(self) -> DynamicConfig: ...

    @property
    def started_ms(self) -> int:
        """When it began, by the wall clock."""
        ...

    @property
    def metadata_url(self) -> str:
        """Where the cluster's metadata is, as operators know it."""
        ...

    @property
    def urls(self) -> ServiceUrls:
        """Where this broker is."""
        ...

    @property
    def ledgers(self) -> ManagedLedgerContext: ...

    @property
    def connections(self) -> int:
        """Client connections open now."""
        ...

    @property
    def connections_accepted(self) -> int:
        """Client connections since the start, open or not."""
        ...

    @property
    def not_ready(self) -> str | None:
        """Why nobody is served now; None while clients are."""
        ...

    @property
    def leaving(self) -> str | None:
        """Why nobody new is to be sent here, although clients are served; None otherwise."""
        ...

    @property
    def cannot_store(self) -> str | None:
        """Why no message can be stored now, as far as the write path knows; None while one can be."""
        ...

    async def check_health(self) -> None:
        """Publish a message to storage and read it back, within a bound. Raises MagnetarError."""
        ...

    async def check_backlog_quotas(self) -> None:
        """Look at the backlog of every loaded topic now."""
        ...

    def shut_down(self) -> bool:
        """Have the process stop in good order; False when it cannot."""
        ...

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        """Full names of the namespace's topics in one domain, the system's among them: partitions each by
        its own name.
        """
        ...

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions the topic has; 0 when it is not partitioned, or does not exist."""
        ...

    @property
    def topics_elsewhere(self) -> TopicsElsewhere | None:
        """Knows what other brokers have loaded; None where there are none."""
        ...

    @property
    def bundle_moves(self) -> BundleMoves | None:
        """Moves and splits bundles; None where there is no other broker to have them."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """The other brokers, and what is whose; None in a standalone."""
        ...

    async def lookup(self, topic: TopicName, listener: str = "") -> ServiceUrls:
        """Where the topic is served, for clients of that advertised listener. Raises NamespaceNotFound,
        ServiceNotReady, TooManyRequests, MetadataError.
        """
        ...
