"""The broker as the admin API sees it: a protocol that the broker implements and tests imitate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.bookie_racks import BookieRacks
from magnetar.broker.client_endings import ClientEndings
from magnetar.broker.clusters import Clusters
from magnetar.broker.compaction.service import CompactionService
from magnetar.broker.deletions import Deletions
from magnetar.broker.dynamic_config import DynamicConfig
from magnetar.broker.handlers.client import Client
from magnetar.broker.metrics.views import MetricsSource
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.offload.sweep_schedule import SweepSchedule
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.resource_quotas import ResourceQuotas
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.transactions.coordinator_views import CoordinatorViews
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext

if TYPE_CHECKING:  # not used by a standalone
    from magnetar.broker.control.bundle_moves import BundleMoves
    from magnetar.broker.control.remote_topics import TopicsElsewhere
    from magnetar.broker.load.leader import LoadLeader


class BrokerView(MetricsSource, Protocol):
    """One broker: its figures, and everything that the routes of the admin API act on."""

    @property
    def authenticator(self) -> Authenticator | None:
        """Checks who callers are; None with authentication off."""
        ...

    @property
    def proxy_roles(self) -> frozenset[str] | None:
        """Roles of proxies; None with authorization off."""
        ...

    @property
    def namespaces(self) -> Namespaces: ...

    @property
    def registry(self) -> TopicRegistry:
        """Loads, creates and deletes topics."""
        ...

    @property
    def partitioned(self) -> PartitionedTopics: ...

    @property
    def policies(self) -> PolicyStore: ...

    @property
    def client_endings(self) -> ClientEndings:
        """Clients that were refused or closed lately."""
        ...

    def clients(self) -> Iterator[Client]:
        """Returns the clients that are connected now."""
        ...

    @property
    def compactions(self) -> CompactionService:
        """Compacts topics, and removes compacted views."""
        ...

    @property
    def coordinators(self) -> CoordinatorViews | None:
        """The transaction coordinators of the cluster; None with transactions off."""
        ...

    @property
    def policy_writer(self) -> PolicyWriter: ...

    @property
    def authorizer(self) -> Authorizer:
        """Checks what callers may do."""
        ...

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
        """Start of the broker by the wall clock, ms since 1970 UTC."""
        ...

    @property
    def metadata_url(self) -> str:
        """The URL of the cluster's metadata, as operators configure it."""
        ...

    @property
    def urls(self) -> ServiceUrls:
        """The addresses of this broker."""
        ...

    @property
    def ledgers(self) -> ManagedLedgerContext: ...

    async def check_health(self) -> None:
        """Publishes a message and reads it back, within a time limit. Raises MagnetarError."""
        ...

    async def check_backlog_quotas(self) -> None:
        """Checks the backlog quota of every loaded topic now."""
        ...

    def shut_down(self) -> bool:
        """Asks the process to shut down gracefully; returns False when it cannot."""
        ...

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        """Returns the full names of the namespace's topics in one domain, including system topics; each
        partition is listed by its own name.
        """
        ...

    async def partitions(self, topic: TopicName) -> int:
        """Returns the number of partitions; 0 when the topic is not partitioned or does not exist."""
        ...

    @property
    def topics_elsewhere(self) -> TopicsElsewhere | None:
        """The topics that other brokers have loaded; None in a standalone."""
        ...

    @property
    def bundle_moves(self) -> BundleMoves | None:
        """Moves and splits bundles; None in a standalone."""
        ...

    @property
    def load_leader(self) -> LoadLeader | None:
        """Assigns bundles while this broker leads; None in a standalone."""
        ...

    async def lookup(self, topic: TopicName, listener: str = "") -> ServiceUrls:
        """Returns the addresses of the broker that serves the topic, for clients of that advertised listener.

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        ...
