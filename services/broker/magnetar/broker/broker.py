"""The broker: composes listener, topics and stores, and starts and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.config import BrokerConfig
from magnetar.broker.handlers.client import Services
from magnetar.broker.housekeeping import Housekeeping
from magnetar.broker.namespaces import Namespaces
from magnetar.broker.policies.policy_store import PolicyStore
from magnetar.broker.policies.policy_writer import PolicyWriter
from magnetar.broker.schemas import SchemaStore
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.stats import RateSampler
from magnetar.broker.tenancy import Tenancy
from magnetar.broker.topics.ownership_proof import OwnershipProof
from magnetar.broker.topics.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.producer_names import ProducerNames
from magnetar.broker.topics.topic import Topic
from magnetar.broker.topics.topic_lists import TopicLists
from magnetar.broker.topics.topic_registry import TopicRegistry
from magnetar.broker.transport.listener import Listener
from magnetar.common.errors import MagnetarError, OwnershipLost, ServiceNotReady
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.intents import finish_intents

log = get_logger(__name__)

INTENTS_INTERVAL_S: Final = 60.0
"""Between two looks for recorded deletions that nobody finished."""


class Broker:
    """Serves topics to Pulsar clients, over whatever ledgers and metadata it is given."""

    def __init__(
        self,
        config: BrokerConfig,
        ledgers: ManagedLedgerContext,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
    ) -> None:
        self.config = config
        self.urls = ServiceUrls()
        self.namespaces = Namespaces(metadata, keys)
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
        )
        self.partitioned = PartitionedTopics(config, ledgers, metadata, keys, self.policies, self._registry)
        self._topic_lists = TopicLists(metadata, keys, self._registry)
        self.listener: Listener | None = None
        self.not_ready: str | None = "the broker is starting"
        """Why nobody is served now; None while clients are."""

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
        self.policies.start(self._registry.policies_changed)
        # Before anybody is served: what a former run recorded to delete and did not finish.
        await finish_intents(self._ledgers)
        self._tasks.spawn(self._finish_intents_for_ever(), "finish intents")
        names = await ProducerNames.open(config.cluster_name, self._metadata, self._keys)
        services = Services(
            config=config,
            topics=self._registry,
            partitioned=self.partitioned,
            topic_lists=self._topic_lists,
            schemas=self.schemas,
            producer_names=names,
            clock=self._clock,
            urls=self.urls,
            spawn=self._tasks.spawn,
            budget=self._budget,
        )
        self.listener = Listener(services)
        host = config.listener.bind_address
        port = await self.listener.start(host, config.listener.broker_service_port)
        advertised = config.listener.advertised_address or host
        self.urls.broker_url = f"pulsar://{advertised}:{port}"
        self._tasks.spawn(RateSampler(lambda: list(self.topics.values()), self._clock).run(), "rate sampler")
        Housekeeping(self._registry, self.partitioned, config, self._clock).start(self._tasks.spawn)
        self.not_ready = None

    async def _finish_intents_for_ever(self) -> None:
        """Deletions that failed between their steps are tried again; young intents are still at work."""
        while True:
            await asyncio.sleep(INTENTS_INTERVAL_S)
            try:
                await finish_intents(self._ledgers, age_min_ms=int(INTENTS_INTERVAL_S * 1000))
            except MagnetarError as error:
                log.warning("deletions not finished, trying again", error=str(error))

    def prove_ownership(self, heard_s: Callable[[], float], patience_s: float) -> None:
        """From now on, when metadata was not heard for `patience_s`, have topics prove that they are ours."""
        proof = OwnershipProof(self._registry, self._clock, heard_s, patience_s)
        self._tasks.spawn(proof.run(), "ownership proof")

    def abandon(self, reason: str) -> None:
        """Stop serving at once: another broker owns the topics. Nothing more is confirmed or delivered.

        Clients are disconnected and look their topics up again. `close` remains to be called.
        """
        self.not_ready = reason
        if self.listener is not None:
            self.listener.stop_accepting()
        self._registry.abandon(OwnershipLost(reason))
        if self.listener is not None:
            for connection in self.listener:
                connection.close(reason)

    async def close(self) -> None:
        """Tell clients, confirm what was taken, flush cursors, then close the connections."""
        self.not_ready = self.not_ready or "the broker is shutting down"
        if self.listener is not None:
            self.listener.stop_accepting()
        await self._registry.close()
        if self.listener is not None:
            await self.listener.close()
        await self._topic_lists.close()
        await self.policies.close()
        await self.namespaces.close()
        await self._tasks.close()

    # -- what HTTP asks

    async def list_topics(self, namespace: NamespaceName, persistent: bool) -> list[str]:
        """Full names of a namespace's topics. Raises NamespaceNotFound."""
        await self._registry.check_namespace(namespace)
        return await self._registry.list(namespace, persistent=persistent)

    async def partitions(self, name: TopicName) -> int:
        """How many partitions a topic has; 0 when it is not partitioned."""
        return await self._registry.partitions(name)

    async def lookup(self, name: TopicName) -> ServiceUrls:
        """Where the topic is served. Raises NamespaceNotFound, ServiceNotReady."""
        if self.not_ready is not None:
            raise ServiceNotReady(f"this broker serves nobody now: {self.not_ready}")
        await self._registry.check_namespace(name.namespace)
        return self.urls
