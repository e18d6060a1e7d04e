"""Topic lookups: answered from the mirrors if the bundle is owned, otherwise after the bundle is assigned.

Concurrent lookups of one unowned bundle share one assignment request.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from magnetar.common.cluster.broker_directory import BrokerDirectory, addresses_of
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners
from magnetar.common.cluster.rings import Rings
from magnetar.common.errors import ServiceNotReady, TooManyRequests
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

ASSIGNMENTS_MAX: Final = 10_000
"""Limit of concurrent assignment requests."""

RINGS_MAX: Final = 3
"""Number of lookups retried because the ring was divided differently meanwhile."""

_CLOSED: Final = "this process is shutting down; look it up elsewhere"


class Assigner(Protocol):
    """Assigns bundles to owners."""

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Assigns the bundle to a broker and returns the owner's id; returns at once if the bundle has an
        owner.

        Raises NamespaceNotFound; ServiceNotReady if no broker accepts the bundle or the ring is divided
        differently; MetadataError.
        """
        ...


class TopicFinder:
    """Answers lookups. The caller starts and closes its mirrors."""

    def __init__(
        self, rings: Rings, owners: BundleOwners, directory: BrokerDirectory, assigner: Assigner
    ) -> None:
        self.rings = rings
        self.owners = owners
        self.directory = directory
        self.assigner = assigner
        self._asked: dict[Bundle, asyncio.Task[str]] = {}
        self._closed = False

    async def close(self) -> None:
        """Ends pending assignments; their callers get ServiceNotReady. Idempotent."""
        self._closed = True
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)

    async def find(self, topic: TopicName, listener: str = "") -> BrokerRegistration:
        """Returns the broker that serves the topic and has addresses for that advertised listener.

        Raises NamespaceNotFound, ServiceNotReady, TooManyRequests, MetadataError.
        """
        bundle = self.rings.bundle_of(topic)
        if bundle is None:
            bundle = (await self.rings.load(topic.namespace)).bundle_of(topic)
        for _ in range(RINGS_MAX):
            try:
                found = self.owner(topic.namespace, bundle) or await self.assigned(topic.namespace, bundle)
            except ServiceNotReady:
                now = (await self.rings.load(topic.namespace)).bundle_of(topic)
                if now == bundle:
                    raise
                bundle = now
            else:
                addresses_of(found, listener)
                return found
        raise ServiceNotReady(f"the bundles of {topic.namespace} are being split; look {topic} up again")

    def owner(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration | None:
        """Returns the bundle's owner; None if no running broker is known to own it."""
        owned = self.owners.owner_of(namespace, bundle)
        if owned is None:
            return None
        found = self.directory.get(owned.broker_id)
        return found if found is not None and found.run == owned.run else None

    async def assigned(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration:
        """Returns the bundle's owner after it is assigned. Raises as `find`."""
        asked = self._asked.get((namespace, bundle)) or self._ask(namespace, bundle)
        # The shared task is shielded: one caller's cancellation must not end it for the others.
        await asyncio.wait([asked])
        if asked.cancelled():
            raise ServiceNotReady(_CLOSED)
        broker_id = asked.result()
        found = self.directory.get(broker_id)
        if found is None:
            raise ServiceNotReady(
                f"bundle {bundle} of {namespace} was assigned to {broker_id}, which is not registered; "
                "look it up again"
            )
        return found

    def _ask(self, namespace: NamespaceName, bundle: BundleRange) -> asyncio.Task[str]:
        if self._closed:
            raise ServiceNotReady(_CLOSED)
        if len(self._asked) >= ASSIGNMENTS_MAX:
            raise TooManyRequests(f"{ASSIGNMENTS_MAX} bundles are being assigned already; look it up again")

        async def assign() -> str:
            return await self.assigner.assign(namespace, bundle)

        def done(task: asyncio.Task[str]) -> None:
            del self._asked[namespace, bundle]
            if not task.cancelled():
                task.exception()  # every waiter may be cancelled, leaving the exception unread

        task = asyncio.create_task(assign(), name=f"assign {bundle} of {namespace}")
        task.add_done_callback(done)
        self._asked[namespace, bundle] = task
        return task
