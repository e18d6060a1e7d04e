"""The broker: composes listener, topics and stores, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.broker.advertised_listeners import internal_name, parse_listeners
from magnetar.broker.bookie_racks import BookieRacks
from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.cache_figures import CacheFigures
from magnetar.broker.client_endings import ClientEndings, EndCode
from magnetar.broker.clusters import Clusters
from magnetar.broker.cold.cold_tier import ColdTier
from magnetar.broker.compaction.monitor import CompactionMonitor
from magnetar.broker.compaction.service import CompactionService
from magnetar.broker.config import BrokerConfig
from magnetar.broker.deletions import Deletions
from magnetar.broker.dynamic_config import DynamicConfig
from magnetar.broker.handlers.client import Client, Services
from magnetar.broker.handlers.credentials import close_if_revoked
from magnetar.broker.handlers.revocation import Revocation
from magnetar.broker.health.health_checks import HealthChecks
from magnetar.broker.health.heartbeat_topic import HeartbeatTopic
from magnetar.broker.housekeeping import Housekeeping
from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.lookups import counted_lookup
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.offload.policy_trigger import PolicyTrigger
from magnetar.broker.offload.sweep_schedule import SweepSchedule
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.broker.ownership.ownership import Ownership
from magnetar.broker.ownership.sole_ownership import SoleOwnership
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.resource_quotas import ResourceQuotas
from magnetar.broker.restored_metadata import RestoredMetadata
from magnetar.broker.schemas.schema_store import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.stats import RateSampler
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.publish.producer_names import ProducerNames
from magnetar.broker.topics.registry.ownership_proof import OwnershipProof
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.watch.topic_lists import TopicLists
from magnetar.broker.transactions.coordinator_topic import IN_A_CLUSTER, IN_A_STANDALONE
from magnetar.broker.transactions.transactions import Transactions
from magnetar.broker.transport.listener import Listener
from magnetar.common.errors import MagnetarError, OwnershipLost, ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.audit import open_audit_file
from magnetar.common.security.authentication.provider_table import open_authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.ledger.ledger_store import Obstacle
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import finish_intents
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

if TYPE_CHECKING:  # not used by a standalone without transactions
    from magnetar.broker.control.bundle_moves import BundleMoves
    from magnetar.broker.control.control_plane import ControlPlane
    from magnetar.broker.control.remote_topics import TopicsElsewhere
    from magnetar.broker.load.leader import LoadLeader
    from magnetar.broker.ownership.cluster import Cluster
    from magnetar.broker.tenure import Lease
    from magnetar.broker.transactions.coordinator_views import CoordinatorViews
    from magnetar.common.security.tls.accepting import PortTls

log = get_logger(__name__)

INTENTS_INTERVAL_S: Final = 60.0
"""Seconds between two scans for recorded, unfinished deletions."""


class Broker:
    """Serves topics to Pulsar clients, over the given ledgers and metadata."""

    def __init__(
        self,
        config: BrokerConfig,
        ledgers: ManagedLedgerContext,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        cluster: Cluster | None = None,
    ) -> None:
        """Builds the broker without starting it.

        `cluster` decides which topics this broker serves; the caller starts and closes it. Without `cluster`
        there are no other brokers, and this one serves all topics.
        """
        self.dynamic_config = DynamicConfig(config, metadata, keys)
        self.config = config = self.dynamic_config.current
        self.urls = ServiceUrls()
        self.started_ms = clock.wall_ms()
        self.metadata_url = ""
        """Address of the cluster's metadata for operators; set by the code that opened it."""
        self.stop_process: Callable[[], None] | None = None
        """Requests a clean stop of the process; None when the broker does not control its process."""
        self.namespaces = Namespaces(metadata, keys)
        self.cluster = cluster
        self.bundle_moves: BundleMoves | None = None
        """Moves and splits bundles; None without other brokers."""
        self.load_leader: LoadLeader | None = None
        """Assigns bundles while this broker leads; None without other brokers."""
        self.topics_elsewhere: TopicsElsewhere | None = None
        """Reads the topics that other brokers have loaded; None without other brokers."""
        self._leads: Callable[[], bool] = lambda: True
        self.authenticator = open_authenticator(config.authentication)
        """Checks who clients are; None with authentication off."""
        rights = config.authorization
        self.proxy_roles = frozenset(rights.proxy_roles) if rights.enabled else None
        """Roles of proxies; None with authorization off."""
        self.ownership: Ownership
        if cluster is None:
            self.ownership = SoleOwnership(self.namespaces, self.urls)
        else:
            self.ownership = cluster.ownership
            cluster.ownership.on_lost = self._bundle_lost
        self._schema_threads = ThreadPool(1, "schemas")
        self.schemas = SchemaStore(metadata, keys, clock, self._schema_threads)
        self._ledgers = ledgers
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._tasks = TaskOwner("broker")
        self._budget = ByteBudget(config.memory, ledgers.cache)
        self.policies = PolicyStore(config, metadata, keys)
        self.authorizer = Authorizer(config.authorization, metadata, keys)
        self.policy_writer = PolicyWriter(metadata, keys)
        self.tenancy = Tenancy(metadata, keys, clock)
        self.clusters = Clusters(metadata, keys, config.cluster_name, clock)
        self.bookie_racks = BookieRacks(metadata, keys)
        self.resource_quotas = ResourceQuotas(metadata, keys)
        self._registry = TopicRegistry(
            config,
            self._budget,
            ledgers,
            metadata,
            keys,
            self.namespaces,
            self.policies,
            self.schemas,
            self._tasks.spawn,
            self.ownership,
        )
        self.partitioned = PartitionedTopics(config, ledgers, metadata, keys, self.policies, self._registry)
        self.deletions = Deletions(ledgers, self._registry, self.namespaces, self.policies)
        self.orphans = Reconciler(ledgers, self._registry, config.orphans)
        self._housekeeping = Housekeeping(
            self._registry, self.partitioned, config.policies, clock, ledgers.restored
        )
        self._restored = RestoredMetadata(ledgers)
        self.cold = ColdTier(lambda: self._registry.loaded, ledgers, config.offload)
        offloads = OffloadLedgers(metadata, keys, clock)
        self.compactions = CompactionService(config.policies.compaction, clock, self._tasks.spawn)
        self._compaction_monitor = CompactionMonitor(
            lambda: self._registry.loaded, self.compactions, config.policies.compaction, clock
        )
        self._policy_trigger = PolicyTrigger(lambda: self._registry.loaded, offloads, config.offload, clock)
        self.sweep = SweepSchedule(
            metadata, keys, offloads, config.offload, config.cluster_name, lambda: self._leads()
        )
        self._health_checks = HealthChecks(self._heartbeat_topic, ledgers, self._obstacle)
        self._topic_lists = TopicLists(metadata, keys, self._registry)
        self.transactions = Transactions(self._registry, self.ownership, ledgers)
        self.client_endings = ClientEndings()
        """Clients that were refused or closed lately."""
        self.listener: Listener | None = None
        self.port = 0
        """Port of the binary protocol, 0 before the broker listens, and without a plain port."""
        self.port_tls = 0
        """Port of the binary protocol with TLS; 0 without."""
        self.shares_ports = False
        """Whether other processes listen at the same ports; set before `start`."""
        self.tls: PortTls | None = None
        """TLS of the binary protocol; set before `start` where a port of it is configured."""
        self.not_ready: str | None = "the broker is starting"
        """Reason for refusing clients now; None while clients are served."""
        self.leaving: str | None = None
        """Reason for refusing new clients; connected clients are served until their topics have moved. None
        when not leaving.
        """

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Loaded topics by full name."""
        return self._registry.loaded

    @property
    def registry(self) -> TopicRegistry:
        return self._registry

    @property
    def ledgers(self) -> ManagedLedgerContext:
        return self._ledgers

    @property
    def broker_id(self) -> str:
        """Broker id: host:port of its HTTP listener."""
        registered = "" if self.cluster is None else self.cluster.presence.broker_id
        return registered or urlsplit(self.urls.any_http_url).netloc

    @property
    def cannot_store(self) -> str | None:
        """Reason why messages cannot be stored now, according to the write path; None while they can."""
        obstacle = self._obstacle()
        return None if obstacle is None else obstacle.reason

    def _obstacle(self) -> Obstacle | None:
        return self._ledgers.ledgers.obstacle(self._ledgers.config.ack_quorum)

    def _heartbeat_topic(self) -> HeartbeatTopic:
        name = TopicName.heartbeat(self.broker_id)
        return HeartbeatTopic(name, self.config, self._budget, self._ledgers, self._tasks.spawn)

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return 0 if self.listener is None else len(self.listener)

    @property
    def connections_accepted(self) -> int:
        """Number of connections accepted since the start."""
        return 0 if self.listener is None else self.listener.accepted

    async def start(self) -> None:
        """Creates the default tenant and namespace, then listens. Raises OSError when the port is in use."""
        config = self.config
        await self.namespaces.ensure_defaults(config.cluster_name)
        await self.namespaces.start()
        await self.dynamic_config.start(self._settings_changed)
        self.policies.start(self._registry.policies_changed)
        if config.audit.file:
            open_audit_file(config.audit.file)
        self.authorizer.start(Revocation(self.authorizer, self.clients, self._tasks.spawn).rights_changed)
        await self._restored.look()
        self._tasks.spawn(self._restored.follow(), "restored metadata")
        self._tasks.spawn(self.schemas.follow(), "schemas")
        # Deletions that an earlier run recorded and did not finish are resumed before clients are served.
        await finish_intents(self._ledgers)
        self._tasks.spawn(self._finish_intents_for_ever(), "finish intents")
        self._tasks.spawn(self.orphans.run(), "orphans")
        self.cold.start(self._tasks.spawn)
        self._tasks.spawn(self._policy_trigger.run(), "ledgers to be offloaded")
        self._tasks.spawn(self._compaction_monitor.run(), "compaction thresholds")
        if config.offload.sweep_enabled:
            self._tasks.spawn(self.sweep.run(), "sweep of objects")
        if config.transactions.enabled:
            await self.transactions.start(
                self._tasks.spawn,
                config.transactions,
                cluster=config.cluster_name,
                count=IN_A_STANDALONE if self.cluster is None else IN_A_CLUSTER,
            )
        names = await ProducerNames.open(config.cluster_name, self._metadata, self._keys)
        services = Services(
            config=config,
            topics=self._registry,
            partitioned=self.partitioned,
            topic_lists=self._topic_lists,
            schemas=self.schemas,
            producer_names=names,
            clock=self._clock,
            ownership=self.ownership,
            spawn=self._tasks.spawn,
            budget=self._budget,
            authenticator=self.authenticator,
            proxy_roles=self.proxy_roles,
            authorizer=self.authorizer,
            transactions=self.transactions,
            endings=self.client_endings,
        )
        if self.authenticator is not None:
            self.authenticator.on_change(self._credentials_changed)
            every_s = config.authentication.files_check_s
            self._tasks.spawn(self.authenticator.follow_files(every_s), "authentication files")
        self.listener = Listener(services, shares_ports=self.shares_ports)
        self.port, self.port_tls = await self.listen(config.listener)
        self._advertise(config.listener.advertised_address or config.listener.bind_address)
        sampler = RateSampler(
            lambda: list(self.topics.values()),
            self._clock,
            self.config.metrics.rates_period_s,
            CacheFigures(self._ledgers.cache, config.cluster_name).sample,
        )
        self._tasks.spawn(sampler.run(), "rate sampler")
        self._housekeeping.start(self._tasks.spawn)
        self._tasks.spawn(self._health_checks.prove_for_ever(), "proof of storage")
        self.not_ready = None

    async def listen(self, ports: ListenerConfig) -> tuple[int, int]:
        """Listens at the binary protocol's ports, without TLS and with it; returns them, 0 for none. `start`
        opens the configured ones. Raises OSError.
        """
        assert self.listener is not None, "the broker has started"
        host, plain, with_tls = ports.bind_address, ports.broker_service_port, ports.broker_service_port_tls
        bound = bound_tls = 0
        if plain is not None:
            bound = await self.listener.start(host, plain)
        if with_tls is not None:
            assert self.tls is not None, "the caller has loaded the certificate of this port"
            bound_tls = self.listener.start_tls(host, with_tls, self.tls)
        return bound, bound_tls

    def _advertise(self, host: str) -> None:
        """Sets the addresses that clients get from lookups: the configured ones, else the bind address."""
        listener = self.config.listener
        self.urls.broker_url = f"pulsar://{host}:{self.port}" if self.port else ""
        self.urls.broker_url_tls = f"pulsar+ssl://{host}:{self.port_tls}" if self.port_tls else ""
        self.urls.listeners = parse_listeners(listener.advertised_listeners)
        internal = self.urls.listeners.get(internal_name(listener))
        if internal is not None:
            self.urls.broker_url = internal.broker_url
            self.urls.broker_url_tls = internal.broker_url_tls or self.urls.broker_url_tls

    async def _finish_intents_for_ever(self) -> None:
        """Retries recorded deletions whose steps failed; recent intents belong to a deletion in progress.

        Without other brokers, intents of an earlier run are resumed at once, in the background: the
        namespaces and tenants they name have already disappeared for clients. In a cluster the leader does
        this, and skips recent intents because another broker may be executing them. Two leaders at the same
        time do no harm: each step checks the intent.
        """
        age_min_ms = 0 if self.cluster is None else int(INTENTS_INTERVAL_S * 1000)
        while True:
            try:
                if self._leads():
                    await self.deletions.finish(age_min_ms=age_min_ms)
                    await finish_intents(self._ledgers, age_min_ms=int(INTENTS_INTERVAL_S * 1000))
                    others = [] if self.cluster is None else self.cluster.directory.all()
                    live = [self.broker_id, *(each.broker_id for each in others)]
                    await self._health_checks.clear_departed(live)
            except MagnetarError as error:
                log.warning("deletions not finished, retrying", error=str(error))
            age_min_ms = int(INTENTS_INTERVAL_S * 1000)
            await asyncio.sleep(INTENTS_INTERVAL_S)

    def _settings_changed(self) -> None:
        """Recomputes values derived from settings."""
        self._budget.limit_publishes()
        self._registry.rates_changed()
        self.policies.configuration_changed()
        self.authorizer.settings_changed()

    def clients(self) -> Iterator[Client]:
        """Returns the clients that are connected now."""
        return iter(()) if self.listener is None else (connection.client for connection in self.listener)

    def _credentials_changed(self) -> None:
        self._tasks.spawn(self._close_revoked(), "revoked credentials")

    async def _close_revoked(self) -> None:
        """Closes the connections whose credentials were revoked."""
        async for connection in iterate_cooperatively(self.listener or ()):
            close_if_revoked(connection.client)

    def prove_ownership(self, lease: Lease) -> None:
        """Makes topics prove their ownership whenever the broker's metadata session may have expired."""
        proof = OwnershipProof(self._registry, lease)
        self._tasks.spawn(proof.run(), "ownership proof")

    def fill_registration(self, registration: BrokerRegistration) -> None:
        """Fills in the addresses of the listening broker in its registration."""
        self.urls.fill(registration.addresses)
        for name, urls in self.urls.listeners.items():
            urls.fill(registration.listeners[name])
        registration.version = version("magnetar-broker")

    def join(self, others: ControlPlane) -> None:
        """Connects this broker to the other brokers of its cluster: topics elsewhere, bundle moves and the
        leader.
        """
        self.bundle_moves = others.moves
        self.load_leader = others.leader
        self._topic_lists.elsewhere = self.partitioned.elsewhere = self.deletions.elsewhere = others.topics
        self.topics_elsewhere = others.topics
        self.transactions.participants = self.transactions.statuses = others.transactions
        self.orphans.leads = self._leads = lambda: others.leads

    def abandon(self, reason: str) -> None:
        """Stops serving at once because other brokers own the topics. Nothing more is confirmed or delivered.

        Clients are disconnected and look their topics up again. The caller still has to call `close`.
        """
        self.not_ready = reason
        if self.cluster is not None:
            self.cluster.drop(reason)
        if self.listener is not None:
            self.listener.stop_accepting()
        self.transactions.abandon(reason)
        self._registry.abandon(OwnershipLost(reason))
        self._health_checks.abandon(reason)
        if self.listener is not None:
            for connection in self.listener:
                connection.close(reason, EndCode.OWNERSHIP_LOST)

    def _bundle_lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Stops serving the topics of a bundle that this broker has lost."""
        reason = f"bundle {bundle} of {namespace} is no longer owned by this broker"
        self.transactions.bundle_lost(namespace, bundle)
        self._registry.abandon_bundle(namespace, bundle, OwnershipLost(reason))

    async def close(self) -> None:
        """Notifies clients, confirms received messages, flushes cursors, then closes the connections."""
        self.not_ready = self.not_ready or "the broker is shutting down"
        if self.listener is not None:
            self.listener.stop_accepting()
        await self.transactions.close()
        await self._registry.close()
        await self._health_checks.close()
        if self.listener is not None:
            await self.listener.close()
        await self._topic_lists.close()
        await self.dynamic_config.close()
        await self.policies.close()
        await self.authorizer.close()
        await self.namespaces.close()
        await self._tasks.close()
        if self.authenticator is not None:
            await self.authenticator.close()
        await self.cold.close()
        self._schema_threads.close()

    # -- called by the admin API

    async def check_health(self) -> None:
        """Publishes a message to storage and reads it back. Raises MagnetarError with the step that
        failed.
        """
        await self._health_checks.check()

    async def check_backlog_quotas(self) -> None:
        """Checks the backlog quotas of every loaded topic now."""
        await self._housekeeping.check_quotas()

    def shut_down(self) -> bool:
        """Requests a clean stop of the process, after the current request is answered; returns False when it
        cannot.
        """
        if self.stop_process is None:
            return False
        asyncio.get_running_loop().call_soon(self.stop_process)
        return True

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        """Returns the full names of a namespace's topics, including system topics. Raises
        NamespaceNotFound.
        """
        await self._registry.check_namespace(namespace)
        if persistent:
            return await self._registry.list(namespace, persistent=True, system_too=True)
        return await self._topic_lists.non_persistent(namespace, system_too=True)

    async def partitions(self, name: TopicName) -> int:
        """Returns the number of partitions of a topic; 0 when it is not partitioned."""
        return await self._registry.partitions(name)

    @property
    def coordinators(self) -> CoordinatorViews | None:
        """The transaction coordinators of the cluster, for the admin API; None with transactions off."""
        found = self.transactions.coordinators
        if found is None:
            return None
        from magnetar.broker.transactions.administration import Administration  # needs a coordinator

        return Administration(found, self._metadata, self._keys)

    async def lookup(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Returns the addresses of the topic's broker, for clients of the given advertised listener.

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        with counted_lookup(self.config.cluster_name):
            if self.not_ready is not None:
                raise ServiceNotReady(f"this broker refuses clients now: {self.not_ready}")
            return await self.ownership.where(name, listener)
