"""The broker: composes listener, topics and stores, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from magnetar.broker.advertised_listeners import internal_name, parse_listeners
from magnetar.broker.bookie_racks import BookieRacks
from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.cache_figures import CacheFigures
from magnetar.broker.clusters import Clusters
from magnetar.broker.cold.cold_tier import ColdTier
from magnetar.broker.config import BrokerConfig
from magnetar.broker.deletions import Deletions
from magnetar.broker.dynamic_config import DynamicConfig
from magnetar.broker.handlers.client import Services
from magnetar.broker.health.health_checks import HealthChecks
from magnetar.broker.health.heartbeat_topic import HeartbeatTopic
from magnetar.broker.housekeeping import Housekeeping
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
from magnetar.broker.schemas import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.stats import RateSampler
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.publish.producer_names import ProducerNames
from magnetar.broker.topics.registry.ownership_proof import OwnershipProof
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.watch.topic_lists import TopicLists
from magnetar.broker.transport.listener import Listener
from magnetar.common.errors import MagnetarError, OwnershipLost, ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.ledger_store import Obstacle
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import finish_intents
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

if TYPE_CHECKING:  # a standalone has no use for it
    from magnetar.broker.control.bundle_moves import BundleMoves
    from magnetar.broker.control.control_plane import ControlPlane
    from magnetar.broker.control.remote_topics import TopicsElsewhere
    from magnetar.broker.ownership.cluster import Cluster
    from magnetar.broker.tenure import Lease
    from magnetar.common.security.tls.accepting import PortTls

log = get_logger(__name__)

INTENTS_INTERVAL_S: Final = 60.0
"""Seconds between two scans for recorded, unfinished deletions."""


class Broker:
    """Serves topics to Pulsar clients, over whatever ledgers and metadata it is given."""

    def __init__(
        self,
        config: BrokerConfig,
        ledgers: ManagedLedgerContext,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        cluster: Cluster | None = None,
    ) -> None:
        """`cluster` says which topics this broker serves; without it there is no other broker, and it serves
        all. The caller that passes it begins and closes it.
        """
        self.dynamic_config = DynamicConfig(config, metadata, keys)
        self.config = config = self.dynamic_config.current
        self.urls = ServiceUrls()
        self.started_ms = clock.wall_ms()
        self.metadata_url = ""
        """Address of the cluster's metadata for operators; set by the code that opened it."""
        self.stop_process: Callable[[], None] | None = None
        """Has the process stop in good order; None when it is not ours to stop."""
        self.namespaces = Namespaces(metadata, keys)
        self.cluster = cluster
        self.bundle_moves: BundleMoves | None = None
        """Moves and splits bundles; None where there is no other broker to have them."""
        self.topics_elsewhere: TopicsElsewhere | None = None
        """Knows what other brokers have loaded; None where there are none."""
        self._leads: Callable[[], bool] = lambda: True
        self.ownership: Ownership
        if cluster is None:
            self.ownership = SoleOwnership(self.namespaces, self.urls)
        else:
            self.ownership = cluster.ownership
            cluster.ownership.on_lost = self._bundle_lost
        self.schemas = SchemaStore(metadata, keys)
        self._ledgers = ledgers
        self._metadata = metadata
        self._keys = keys
        self._clock = clock
        self._tasks = TaskOwner("broker")
        self._budget = ByteBudget(config.memory, ledgers.cache)
        self.policies = PolicyStore(config, metadata, keys)
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
        self._policy_trigger = PolicyTrigger(lambda: self._registry.loaded, offloads, config.offload, clock)
        self.sweep = SweepSchedule(
            metadata, keys, offloads, config.offload, config.cluster_name, lambda: self._leads()
        )
        self._health_checks = HealthChecks(self._heartbeat_topic, ledgers, self._obstacle)
        self._topic_lists = TopicLists(metadata, keys, self._registry)
        self.listener: Listener | None = None
        self.port = 0
        """Port of the binary protocol, once it listens; 0 where there is none without TLS."""
        self.port_tls = 0
        """The same with TLS."""
        self.tls: PortTls | None = None
        """TLS of the binary protocol; set before `start` where a port of it is configured."""
        self.not_ready: str | None = "the broker is starting"
        """Why clients are refused now; None while they are served."""
        self.leaving: str | None = None
        """Why no new clients should connect; current ones are served until their topics have moved."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics loaded now, by full name."""
        return self._registry.loaded

    @property
    def registry(self) -> TopicRegistry:
        return self._registry

    @property
    def ledgers(self) -> ManagedLedgerContext:
        return self._ledgers

    @property
    def broker_id(self) -> str:
        """host:port of its HTTP, by which brokers are known."""
        registered = "" if self.cluster is None else self.cluster.presence.broker_id
        return registered or urlsplit(self.urls.any_http_url).netloc

    @property
    def cannot_store(self) -> str | None:
        """Why no message can be stored now, as far as the write path knows; None while one can be."""
        obstacle = self._obstacle()
        return None if obstacle is None else obstacle.reason

    def _obstacle(self) -> Obstacle | None:
        return self._ledgers.ledgers.obstacle(self._ledgers.config.ack_quorum)

    def _heartbeat_topic(self) -> HeartbeatTopic:
        name = TopicName.heartbeat(self.broker_id)
        return HeartbeatTopic(name, self.config, self._budget, self._ledgers, self._tasks.spawn)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return 0 if self.listener is None else len(self.listener)

    @property
    def connections_accepted(self) -> int:
        """How many clients have connected since the start."""
        return 0 if self.listener is None else self.listener.accepted

    async def start(self) -> None:
        """Make the default tenant and namespace, then listen. Raises OSError when the port is taken."""
        config = self.config
        await self.namespaces.ensure_defaults(config.cluster_name)
        await self.namespaces.start()
        await self.dynamic_config.start(self._settings_changed)
        self.policies.start(self._registry.policies_changed)
        await self._restored.look()
        self._tasks.spawn(self._restored.follow(), "restored metadata")
        # Before clients are served: deletions that a former run recorded and did not finish.
        await finish_intents(self._ledgers)
        self._tasks.spawn(self._finish_intents_for_ever(), "finish intents")
        self._tasks.spawn(self.orphans.run(), "orphans")
        self.cold.start(self._tasks.spawn)
        self._tasks.spawn(self._policy_trigger.run(), "ledgers to be offloaded")
        if config.offload.sweep_enabled:
            self._tasks.spawn(self.sweep.run(), "sweep of objects")
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
        )
        self.listener = Listener(services)
        host = config.listener.bind_address
        if config.listener.broker_service_port is not None:
            self.port = await self.listener.start(host, config.listener.broker_service_port)
        if config.listener.broker_service_port_tls is not None:
            assert self.tls is not None, "the caller has loaded the certificate of this port"
            self.port_tls = self.listener.start_tls(host, config.listener.broker_service_port_tls, self.tls)
        self._advertise(config.listener.advertised_address or host)
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

    def _advertise(self, host: str) -> None:
        """Where clients are sent to: where we listen, or what the configuration says of it."""
        listener = self.config.listener
        self.urls.broker_url = f"pulsar://{host}:{self.port}" if self.port else ""
        self.urls.broker_url_tls = f"pulsar+ssl://{host}:{self.port_tls}" if self.port_tls else ""
        self.urls.listeners = parse_listeners(listener.advertised_listeners)
        internal = self.urls.listeners.get(internal_name(listener))
        if internal is not None:
            self.urls.broker_url = internal.broker_url
            self.urls.broker_url_tls = internal.broker_url_tls or self.urls.broker_url_tls

    async def _finish_intents_for_ever(self) -> None:
        """Deletions that failed between their steps are tried again; young intents are still at work.

        Those of namespaces that a former run of a standalone left are gone on with at once, and nobody waits
        for it: whatever was in them is gone for everybody. Of several brokers the one that leads does it, and
        young ones may be another's work. Two that do it for a moment do no harm: each step checks the intent.
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
                log.warning("deletions not finished, trying again", error=str(error))
            age_min_ms = int(INTENTS_INTERVAL_S * 1000)
            await asyncio.sleep(INTENTS_INTERVAL_S)

    def _settings_changed(self) -> None:
        """Recomputes values derived from settings."""
        self._budget.limit_publishes()
        self._registry.rates_changed()
        self.policies.configuration_changed()

    def prove_ownership(self, lease: Lease) -> None:
        """From now on, while it is not certain that this broker's session lives, topics prove to be ours."""
        proof = OwnershipProof(self._registry, lease)
        self._tasks.spawn(proof.run(), "ownership proof")

    def fill_registration(self, registration: BrokerRegistration) -> None:
        """Write down where clients reach this broker, once it listens."""
        self.urls.fill(registration.addresses)
        for name, urls in self.urls.listeners.items():
            urls.fill(registration.listeners[name])
        registration.version = version("magnetar-broker")

    def join(self, others: ControlPlane) -> None:
        """There are other brokers from now on: they have topics, and one of them leads."""
        self.bundle_moves = others.moves
        self._topic_lists.elsewhere = self.partitioned.elsewhere = self.deletions.elsewhere = others.topics
        self.topics_elsewhere = others.topics
        self.orphans.leads = self._leads = lambda: others.leads

    def abandon(self, reason: str) -> None:
        """Stop serving at once: others own the topics. Nothing more is confirmed or delivered.

        Clients are disconnected and look their topics up again. `close` remains to be called.
        """
        self.not_ready = reason
        if self.cluster is not None:
            self.cluster.drop(reason)
        if self.listener is not None:
            self.listener.stop_accepting()
        self._registry.abandon(OwnershipLost(reason))
        self._health_checks.abandon(reason)
        if self.listener is not None:
            for connection in self.listener:
                connection.close(reason)

    def _bundle_lost(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """A bundle is another broker's: its topics are served no more from this moment on."""
        reason = f"bundle {bundle} of {namespace} is not owned by this broker any more"
        self._registry.abandon_bundle(namespace, bundle, OwnershipLost(reason))

    async def close(self) -> None:
        """Tell clients, confirm what was taken, flush cursors, then close the connections."""
        self.not_ready = self.not_ready or "the broker is shutting down"
        if self.listener is not None:
            self.listener.stop_accepting()
        await self._registry.close()
        await self._health_checks.close()
        if self.listener is not None:
            await self.listener.close()
        await self._topic_lists.close()
        await self.dynamic_config.close()
        await self.policies.close()
        await self.namespaces.close()
        await self._tasks.close()
        await self.cold.close()

    # -- what HTTP asks

    async def check_health(self) -> None:
        """Publish a message to storage and read it back. Raises MagnetarError, which says what failed."""
        await self._health_checks.check()

    async def check_backlog_quotas(self) -> None:
        """Look at the backlog of every loaded topic now."""
        await self._housekeeping.check_quotas()

    def shut_down(self) -> bool:
        """Have the process stop in good order, once what runs now is answered; False when it cannot."""
        if self.stop_process is None:
            return False
        asyncio.get_running_loop().call_soon(self.stop_process)
        return True

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        """Full names of a namespace's topics, the system's among them. Raises NamespaceNotFound."""
        await self._registry.check_namespace(namespace)
        if persistent:
            return await self._registry.list(namespace, persistent=True, system_too=True)
        return await self._topic_lists.non_persistent(namespace, system_too=True)

    async def partitions(self, name: TopicName) -> int:
        """How many partitions a topic has; 0 when it is not partitioned."""
        return await self._registry.partitions(name)

    async def lookup(self, name: TopicName, listener: str = "") -> ServiceUrls:
        """Where the topic is served, for clients of that advertised listener.

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        with counted_lookup(self.config.cluster_name):
            if self.not_ready is not None:
                raise ServiceNotReady(f"this broker refuses clients now: {self.not_ready}")
            return await self.ownership.where(name, listener)
