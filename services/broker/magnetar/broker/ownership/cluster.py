"""One run of this broker in its cluster: the registered brokers, the owners, and its own bundles."""

from __future__ import annotations

import random

from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.presence import Change, Presence
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.runtime.clock import Clock


class Cluster:
    """`begin`, `register`, serve until `presence.lost()` returns, then `drop` or not, `close`. Used once."""

    def __init__(
        self, metadata: MetadataStore, keys: Keys, clock: Clock, rng: random.Random, *, session_ttl_ms: int
    ) -> None:
        self.rings = Rings(metadata, keys)
        self.owners = BundleOwners(metadata, keys)
        self.directory = BrokerDirectory(metadata, keys)
        self.presence = Presence(metadata, keys, clock, rng, session_ttl_ms=session_ttl_ms)
        self.ownership = BundleOwnership(
            metadata, keys, clock, self.presence, self.rings, self.owners, self.directory
        )

    async def begin(self, broker_id: str) -> None:
        """Reads the registered brokers; waits for metadata. This run is not registered yet."""
        await self.presence.begin(broker_id)
        await self.rings.start()
        await self.owners.start()
        await self.directory.start()

    async def register(self, change: Change) -> None:
        """Registers this broker and starts taking bundles; call it again when the registration changes.

        Raises as Presence.register.
        """
        first = not self.presence.version
        await self.presence.register(change)
        self.directory.note(self.presence.registration, self.presence.version)
        if first:
            self.ownership.open()

    def drop(self, reason: str) -> None:
        """Drops all bundles because metadata has ended this run."""
        self.ownership.drop_everything(reason)

    async def close(self) -> None:
        """Leaves the cluster: owned bundles become unowned at once. Idempotent."""
        await self.ownership.close()
        await self.directory.close()
        await self.owners.close()
        await self.rings.close()
        await self.presence.close()
