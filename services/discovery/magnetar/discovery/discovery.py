"""Composes a discovery from metadata mirrors, handlers and sockets; starts and stops them in order."""

from __future__ import annotations

import asyncio
import random
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.control.control_client import Caller, ControlClient
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.audit import open_audit_file
from magnetar.common.security.authentication.provider_table import open_authenticator
from magnetar.common.security.authorization.authorizer import Authorizer
from magnetar.common.security.services.credentials import loaded
from magnetar.discovery.bundle_assignment import AskingBrokers
from magnetar.discovery.config import DiscoveryConfig
from magnetar.discovery.handlers.partitions import PartitionCounts
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.live_brokers import LiveBrokers
from magnetar.discovery.metadata_pulse import MetadataPulse
from magnetar.discovery.transport.broker_access import BrokerAccess
from magnetar.discovery.transport.broker_links import BrokerLinks
from magnetar.discovery.transport.listener import Listener
from magnetar.discovery.transport.proxy import Proxy

if TYPE_CHECKING:  # without a TLS port there is no use for it
    from magnetar.common.security.tls.accepting import PortTls


class Discovery:
    """Answers lookups and forwards connections; stateless. Use it once: `start`, then `close`."""

    def __init__(
        self, config: DiscoveryConfig, metadata: MetadataStore, keys: Keys, rng: random.Random
    ) -> None:
        """`metadata` stays the caller's to close. Raises ConfigError when a certificate cannot be used."""
        self.config = config
        self.port_tls = 0
        """Port of the binary protocol with TLS; 0 without."""
        self.tls: PortTls | None = None
        """TLS of the binary port; set before `start` where such a port is configured."""
        self.port = 0
        """Port of the binary protocol, after the start."""
        self.not_ready: str | None = "discovery is starting"
        """Reason why clients are refused; None while they are served."""
        self.directory = BrokerDirectory(metadata, keys)
        self.metadata_pulse = MetadataPulse(metadata, keys)
        self.brokers = LiveBrokers(self.directory, first=rng.getrandbits(16))
        self._owners = BundleOwners(metadata, keys)
        self._rings = Rings(metadata, keys)
        self._tasks = TaskOwner("discovery")
        self._control_credentials = loaded(config.control_tls.files())
        self._control = ControlClient(
            Caller(f"discovery on {socket.gethostname()}", version("magnetar-discovery")),
            tls=self._control_credentials,
        )
        assigner = AskingBrokers(self.directory, self.brokers, self._control)
        self.finder = TopicFinder(self._rings, self._owners, self.directory, assigner)
        self.authenticator = open_authenticator(config.authentication)
        """Checks who clients are; None with authentication off."""
        self.authorizer = Authorizer(config.authorization, metadata, keys)
        self.access = access = BrokerAccess(config.broker_client, tls=config.proxy.tls_with_brokers)
        self._links = BrokerLinks(self.directory, self.brokers, access, self._tasks.spawn)
        counts = PartitionCounts(metadata, keys)
        services = Services(config, self.finder, counts, self._links, self.authorizer, self.authenticator)
        max_age_s = config.authentication.tls_connection_max_age_s
        self._proxy = Proxy(self.directory, config.proxy, access, certificate_max_age_s=max_age_s)
        self._listener = Listener(config.listener, services, self._proxy, self._tasks.spawn)

    async def start(self) -> None:
        """Load metadata and accept clients; waits while metadata is unavailable.

        Raises OSError when the port is taken.
        """
        await asyncio.gather(self.directory.start(), self._owners.start(), self._rings.start())
        self._tasks.spawn(self._proxy.watch_stuck(), "watch stuck connections")
        if self.access.as_proxy:
            expiry_s = self.config.authentication.refresh_check_s
            self._tasks.spawn(self._proxy.watch_expiry(expiry_s), "watch certificates of clients")
        self._tasks.spawn(self.metadata_pulse.follow(), "check metadata")
        if self._control_credentials is not None:
            refresh_s = self.config.control_tls.refresh_s
            self._tasks.spawn(self._control_credentials.watch(refresh_s), "watch certificates")
        if self.config.audit.file:
            open_audit_file(self.config.audit.file)
        self.authorizer.start()
        if self.authenticator is not None:
            self.authenticator.on_change(self._listener.close_revoked)
            files_check_s = self.config.authentication.files_check_s
            self._tasks.spawn(self.authenticator.follow_files(files_check_s), "follow keys and passwords")
        if self.tls is not None:
            self.port_tls = self._listener.start_tls(self.tls)
        if self.config.listener.service_port is not None:
            self.port = await self._listener.start(self.config.listener.service_port)
        self.not_ready = None

    async def close(self) -> None:
        """Stop accepting and close every connection. Idempotent."""
        self.not_ready = "discovery is shutting down"
        await self._listener.close()
        self._links.close()
        await self.finder.close()
        await self._control.close()
        await self.authorizer.close()
        if self.authenticator is not None:
            await self.authenticator.close()
        await self._tasks.close()
        await asyncio.gather(self.directory.close(), self._owners.close(), self._rings.close())
