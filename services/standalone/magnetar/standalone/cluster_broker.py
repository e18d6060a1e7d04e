"""A broker of a cluster: metadata in etcd, ledgers on bookies, bundles distributed over brokers.

The process runs in terms. A term is one registration of the broker with its own metadata session. When the
session expires, the process drops all state of the term, so that fenced writers and topics of other brokers
cannot reach the next term. The etcd client and the process's threads outlive terms.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from magnetar.broker.control.control_plane import ControlPlane
from magnetar.broker.listener_config import ListenerConfig
from magnetar.broker.load.config import DYNAMIC as LOAD_SETTINGS
from magnetar.broker.offload.topic_owners import ClusterOwners
from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.metadata.instance import ensure_instance_id, require_instance
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.restoration import require_reconciled
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.services.credentials import CredentialFiles, ServiceCredentials, loaded
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.grpc_methods import BATCH_BYTES_MAX, MESSAGE_BYTES_MAX
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.standalone.broker_front import BrokerFront, ports_in_use
from magnetar.standalone.cluster_config import BookieClientConfig, ClusterBrokerConfig
from magnetar.standalone.offload_service import offload_service
from magnetar.standalone.process_watch import watch_process
from magnetar.standalone.service import Address
from magnetar.standalone.start_error import CannotStart, listed, reason
from magnetar.standalone.startup_pages import NoBrokerYet

_log = get_logger("magnetar.broker")

THREADS_MAX: Final = 2
"""Threads for loading the web framework while messages flow."""

AGAIN_AFTER_S: Final = 1.0
"""Delay after a term that could not begin, in seconds."""

DRAIN_PART: Final = 0.75
"""Share of brokerShutdownTimeoutMs for handing topics over; the rest is for closing."""

DROP_TIMEOUT_S: Final = 10.0
"""Timeout for closing a lost term, in seconds; its resources no longer serve clients."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Resources opened by one term, in the order of opening."""

    opened: AsyncExitStack
    front: BrokerFront
    cluster: Cluster
    control: ControlPlane


class ClusterBroker:
    """`magnetar broker`. Use it once: `start`, then `close`."""

    def __init__(self, config: ClusterBrokerConfig) -> None:
        self.config = config.advertised()
        self._opened = AsyncExitStack()
        self._clock = SystemClock()
        self._rng = random.SystemRandom()
        self._keys = Keys(config.broker.cluster_name)
        self._instance_id = b""
        self._listener: ListenerConfig | None = None
        self._control_port = 0
        self._control_credentials: ServiceCredentials | None = None
        self._bookie_credentials: ServiceCredentials | None = None
        self._tasks = TaskOwner("cluster broker")
        self._term: _Term | None = None

    @property
    def shutdown_timeout_ms(self) -> int:
        return self.config.broker.shutdown_timeout_ms

    @property
    def addresses(self) -> list[Address]:
        assert self._term is not None, "the broker has started"
        front = self._term.front
        return [
            *front.addresses,
            Address("metadata", self.config.metadata.url),
        ]

    async def start(self) -> None:
        """Start the broker; returns when it serves clients.

        Raises ConfigError or CannotStart with every problem found, or another MagnetarError.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Hand topics over to other brokers. Without other brokers: notify clients, confirm accepted messages
        and close ledgers. Then leave the cluster. Idempotent.
        """
        if self._term is not None:
            self._term.front.broker.leaving = "the broker hands over its topics and stops"
        await self._tasks.close()
        term, self._term = self._term, None
        if term is not None:
            await term.control.drain(self.shutdown_timeout_ms / 1000 * DRAIN_PART)
            await term.opened.aclose()
        await self._opened.aclose()

    async def _start(self) -> None:
        problems = self.config.problems()
        if problems:
            raise ConfigError(listed("invalid configuration", problems))
        problems = ports_in_use(self.config.broker.listener)
        if problems:
            raise CannotStart(listed("magnetar cannot start", problems))
        try:
            url = self.config.metadata.url
            access = self.config.metadata_access.access(url, self.config.control.tls.refresh_s)
            metadata = await open_metadata_store(url, access)
            self._opened.push_async_callback(metadata.close)
            self._instance_id = await ensure_instance_id(metadata, self._keys, self._clock, self._rng)
        except MagnetarError as error:
            raise CannotStart(listed("magnetar cannot start", [f"metadata: {error}"])) from error
        self._follow_certificates()
        pool = ThreadPool(THREADS_MAX, "http")
        self._opened.callback(pool.close)
        watch_process(self._opened)
        try:
            self._term = await self._begin_term(metadata, pool)
        except OSError as error:
            raise CannotStart(listed("magnetar cannot start", [reason(error)])) from error
        self._tasks.spawn(self._follow_terms(metadata, pool), "terms")

    def _follow_certificates(self) -> None:
        """Load the certificates of links to other services, and follow their renewal. Raises ConfigError."""
        config = self.config
        self._control_credentials = loaded(config.control.tls.files())
        self._bookie_credentials = loaded(_tls(config.bookies))
        for credentials, refresh_s in (
            (self._control_credentials, config.control.tls.refresh_s),
            (self._bookie_credentials, config.bookies.tls_refresh_s),
        ):
            if credentials is not None:
                self._tasks.spawn(credentials.watch(refresh_s), "watch certificates")

    async def _follow_terms(self, metadata: MetadataStore, pool: ThreadPool) -> None:
        while True:
            if self._term is not None:
                why = await self._term.cluster.presence.lost()
                _log.error("cluster session lost; refusing clients until re-registered", reason=why)
                await self._drop(self._term, why)
                self._term = None
            try:
                self._term = await self._begin_term(metadata, pool)
            except (MagnetarError, OSError) as error:
                _log.error("broker cannot serve; retrying", reason=reason(error), after_s=AGAIN_AFTER_S)
                await self._wait_to_try_again(reason(error))
            else:
                _log.info("serving again", clients=self._term.front.broker_url)

    async def _wait_to_try_again(self, why: str) -> None:
        """Answer liveness checks over HTTP during the wait: a restart would not help."""
        stand_in = NoBrokerYet(f"the broker cannot serve: {why}")
        try:
            await self._stand_in(stand_in)
            await asyncio.sleep(AGAIN_AFTER_S)
        finally:
            await stand_in.close()

    async def _stand_in(self, stand_in: NoBrokerYet) -> None:
        """Serve the startup pages at the broker's HTTP port until they are closed."""
        listener = self._config_with_ports().broker.listener
        with suppress(OSError):  # another process has the port: that may be why
            await stand_in.start(listener.bind_address, listener.web_service_port or 0)

    async def _drop(self, term: _Term, why: str) -> None:
        term.front.broker.abandon(f"no longer registered in the cluster: {why}")
        try:
            async with asyncio.timeout(DROP_TIMEOUT_S):
                await term.opened.aclose()
        except TimeoutError:
            _log.error("resources of a lost term did not close in time", timeout_s=DROP_TIMEOUT_S)

    async def _begin_term(self, metadata: MetadataStore, pool: ThreadPool) -> _Term:
        opened = AsyncExitStack()
        config = self._config_with_ports()
        stand_in = NoBrokerYet("the broker is waiting for metadata")
        opened.push_async_callback(stand_in.close)
        after = NoBrokerYet("the broker has left its cluster or is stopping")
        opened.push_async_callback(after.close)
        try:
            listener = config.broker.listener
            await stand_in.start(listener.bind_address, listener.web_service_port or 0)
            await require_instance(metadata, self._keys, self._instance_id)
            await require_reconciled(metadata, self._keys)
            registry = await self._follow_bookies(opened, metadata)
            ledgers = self._open_ledgers(opened, metadata, registry)
            cluster = Cluster(
                metadata,
                self._keys,
                self._clock,
                self._rng,
                session_ttl_ms=self.config.metadata.session_timeout_ms,
            )
            opened.push_async_callback(cluster.close)
            front = BrokerFront(
                opened, config.broker, ledgers, pool, metadata_url=self.config.metadata.url, cluster=cluster
            )
            await stand_in.close()
            # Resources opened before HTTP close after it, which can be slow while metadata is unavailable.
            opened.push_async_callback(self._stand_in, after)
            front.open_http()
            await cluster.begin(urlsplit(front.http_url).netloc)
            control = self._control_plane(front, cluster, metadata, registry)
            front.broker.join(control)
            opened.push_async_callback(control.close)
            port = await control.listen(
                listener.bind_address, config.control.port, listener.advertised_address
            )
            await front.open()

            def fill(registration: BrokerRegistration) -> None:
                front.broker.fill_registration(registration)
                control.fill_registration(registration)

            await cluster.register(fill)
            await control.serve()
            front.broker.prove_ownership(cluster.presence.lease)
        except BaseException:
            await opened.aclose()
            raise
        self._listener, self._control_port = front.bound_listener, port
        return _Term(opened, front, cluster, control)

    async def _follow_bookies(self, opened: AsyncExitStack, metadata: MetadataStore) -> BookieRegistry:
        registry = BookieRegistry(metadata, self._keys)
        opened.push_async_callback(registry.close)
        await registry.start()
        return registry

    def _open_ledgers(
        self, opened: AsyncExitStack, metadata: MetadataStore, registry: BookieRegistry
    ) -> ManagedLedgerContext:
        config = self.config
        clients = GrpcBookieClients(
            registry.address,
            registry.directory,
            tls=self._bookie_credentials,
            options=_client_options(config),
        )
        opened.push_async_callback(clients.close)
        ledgers = QuorumLedgerStore(
            clients, registry, metadata, self._keys, self._clock, self._rng, config.quorum
        )
        opened.push_async_callback(ledgers.close)
        cache = EntryCache(config.managed_ledger.cache_megabytes * 1024 * 1024)
        return ManagedLedgerContext(ledgers, metadata, self._keys, self._clock, config.managed_ledger, cache)

    def _control_plane(
        self, front: BrokerFront, cluster: Cluster, metadata: MetadataStore, registry: BookieRegistry
    ) -> ControlPlane:
        return ControlPlane(
            cluster,
            front.broker.registry,
            metadata,
            self._keys,
            self._clock,
            front.broker.dynamic_config.follow_also(self.config.load, LOAD_SETTINGS),
            front.broker.transactions,
            self.config.broker.transactions,
            cluster_name=self.config.broker.cluster_name,
            http_url=front.http_url,
            offload=offload_service(front.broker, ClusterOwners(cluster), registry.address),
            tls=self._control_credentials,
        )

    def _config_with_ports(self) -> ClusterBrokerConfig:
        """Free ports, once picked, stay: clients and scrapers know them."""
        if self._listener is None:
            return self.config
        broker = replace(self.config.broker, listener=self._listener)
        control = replace(self.config.control, port=self._control_port)
        return replace(self.config, broker=broker, control=control)


def _tls(config: BookieClientConfig) -> CredentialFiles | None:
    if not config.tls_enabled:
        return None
    return CredentialFiles(
        trust_certs=Path(config.tls_trust_certs),
        certificate=Path(config.tls_certificate) if config.tls_certificate else None,
        key=Path(config.tls_key) if config.tls_key else None,
        server_name=config.tls_server_name,
    )


def _client_options(config: ClusterBrokerConfig) -> ClientOptions:
    timeout_s = float(config.bookies.timeout_s)
    return ClientOptions(
        append_timeout_s=min(timeout_s, config.quorum.add_entry_timeout_s),
        read_timeout_s=timeout_s,
        message_bytes_max=max(MESSAGE_BYTES_MAX, config.broker.publish.message_bytes_max + BATCH_BYTES_MAX),
    )
