"""Composes a discovery from metadata mirrors, handlers and sockets; starts and stops them in order."""

from __future__ import annotations

import asyncio
import random
import socket
from importlib.metadata import version

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.cluster.topic_finder import TopicFinder
from magnetar.common.control.control_client import Caller, ControlClient
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.common.security.services.credentials import loaded
from magnetar.discovery.bundle_assignment import AskingBrokers
from magnetar.discovery.config import DiscoveryConfig
from magnetar.discovery.handlers.partitions import PartitionCounts
from magnetar.discovery.handlers.services import Services
from magnetar.discovery.live_brokers import LiveBrokers
from magnetar.discovery.metadata_pulse import MetadataPulse
from magnetar.discovery.transport.broker_links import BrokerLinks
from magnetar.discovery.transport.listener import Listener
from magnetar.discovery.transport.proxy import Proxy


class Discovery:
    """Answers lookups and forwards connections; stateless. Use it once: `start`, then `close`."""

    def __init__(
        self, config: DiscoveryConfig, metadata: MetadataStore, keys: Keys, rng: random.Random
    ) -> None:
        """`metadata` stays the caller's to close. Raises ConfigError when a certificate cannot be used."""
        self.config = config
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
        self._links = BrokerLinks(self.directory, self.brokers, self._tasks.spawn)
        services = Services(config, self.finder, PartitionCounts(metadata, keys), self._links)
        self._proxy = Proxy(self.directory, config.proxy)
        self._listener = Listener(config.listener, services, self._proxy, self._tasks.spawn)

    async def start(self) -> None:
        """Load metadata and accept clients; waits while metadata is unavailable.

        Raises OSError when the port is taken.
        """
        await asyncio.gather(self.directory.start(), self._owners.start(), self._rings.start())
        self._tasks.spawn(self._proxy.watch_stuck(), "watch stuck connections")
        self._tasks.spawn(self.metadata_pulse.follow(), "check metadata")
        if self._control_credentials is not None:
            refresh_s = self.config.control_tls.refresh_s
            self._tasks.spawn(self._control_credentials.watch(refresh_s), "watch certificates")
        self.port = await self._listener.start()
        self.not_ready = None

    async def close(self) -> None:
        """Stop accepting and close every connection. Idempotent."""
        self.not_ready = "discovery is shutting down"
        await self._listener.close()
        self._links.close()
        await self.finder.close()
        await self._control.close()
        await self._tasks.close()
        await asyncio.gather(self.directory.close(), self._owners.close(), self._rings.close())
