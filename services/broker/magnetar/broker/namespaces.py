"""Existing tenants and namespaces, in metadata.

A request for a topic never creates its namespace, so every lookup, producer and subscription first checks
that it exists. The check is answered from memory while a watch keeps the cache fresh; without the watch,
every check reads the store.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.errors import UnknownOutcome, VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore, Put
from magnetar.common.metadata.values import Namespace, Tenant, decode, encode
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.naming.bundle_range import DEFAULT_BUNDLES
from magnetar.common.naming.namespace_name import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock, SystemClock

_log = get_logger("magnetar.broker.namespaces")

_FIRST_NAMESPACES: Final = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)


class Namespaces:
    """Reads the tenants and namespaces of one cluster."""

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock | None = None) -> None:
        self._metadata = metadata
        self._keys = keys
        self._clock = clock or SystemClock()
        self._known: set[NamespaceName] = set()
        self._removals = 0
        self._watching = False
        self._task: asyncio.Task[None] | None = None

    async def ensure_defaults(self, cluster: str, bundles: int = DEFAULT_BUNDLES) -> None:
        """Creates public/default and pulsar/system, of so many bundles, at the cluster's first start only.

        One transaction creates all of it. pulsar/system cannot be deleted and marks that the transaction is
        done, so a public/default that an operator has deleted stays deleted.
        """
        marker = self._keys.namespace(SYSTEM_NAMESPACE)
        if await self._metadata.get(marker) is not None:
            return
        now = self._clock.wall_ms()
        ops = []
        for name in _FIRST_NAMESPACES:
            tenant = Tenant(allowed_clusters=[cluster], created_ms=now)
            namespace = Namespace(bundle_count=bundles, created_ms=now)
            ops.append(Put(self._keys.tenant(name.tenant), encode(tenant), ABSENT))
            ops.append(Put(self._keys.namespace(name), encode(namespace), ABSENT))
        try:
            await self._metadata.commit(ops)
        except (VersionMismatch, UnknownOutcome):
            # Another broker had its first start at the same moment, or our own commit succeeded but its
            # response was lost.
            if await self._metadata.get(marker) is None:
                raise
            return
        _log.info("default tenants and namespaces created", namespaces=list(map(str, _FIRST_NAMESPACES)))

    async def start(self) -> None:
        """Starts answering `exists` from memory, kept fresh by a watch. Ends with `close`."""
        assert self._task is None, "namespaces are already watched"
        self._task = asyncio.create_task(follow_for_ever("namespaces", self._follow), name="namespaces-watch")

    async def close(self) -> None:
        """Stops the watch; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def exists(self, namespace: NamespaceName) -> bool:
        """Whether the namespace exists now. Raises MetadataError when it is not cached and cannot be read."""
        if namespace in self._known:
            return True
        removals = self._removals
        found = await self._metadata.get(self._keys.namespace(namespace)) is not None
        # A deletion seen meanwhile may have been this namespace's: the next check reads the store again.
        if found and self._watching and removals == self._removals:
            self._known.add(namespace)
        return found

    def forget(self, namespace: NamespaceName) -> None:
        """Removes a namespace that this broker has just deleted from the cache, without waiting for the
        watch.
        """
        self._removals += 1
        self._known.discard(namespace)

    async def get(self, namespace: NamespaceName) -> Namespace | None:
        """Returns the namespace's value, read from the store; None when it does not exist."""
        found = await self._metadata.get(self._keys.namespace(namespace))
        return None if found is None else decode(Namespace, found.value)

    async def tenant_exists(self, tenant: str) -> bool:
        return await self._metadata.get(self._keys.tenant(tenant)) is not None

    async def tenants(self) -> list[str]:
        """Returns all tenants, sorted."""
        listing = await self._metadata.children(self._keys.tenants_prefix)
        return sorted(self._keys.tenant_of(item.key) for item in listing.items)

    async def namespaces_of(self, tenant: str) -> list[NamespaceName]:
        """Returns the namespaces of a tenant, sorted by name; none when the tenant does not exist."""
        listing = await self._metadata.children(self._keys.namespaces_prefix(tenant))
        return sorted((self._keys.namespace_of(item.key) for item in listing.items), key=str)

    async def _follow(self) -> None:
        """Watches until the watch fails or the store is closed; without a watch, each check reads the
        store.
        """
        changes = self._metadata.watch(self._keys.namespaces_prefix())
        try:
            self._watching = True
            async for change in changes:
                if change.value is None:
                    self._removals += 1
                    self._known.discard(self._keys.namespace_of(change.key))
        finally:
            # Later removals are not seen, so the cached names may be stale.
            self._watching = False
            self._forget()
            await changes.aclose()

    def _forget(self) -> None:
        self._removals += 1
        self._known.clear()
