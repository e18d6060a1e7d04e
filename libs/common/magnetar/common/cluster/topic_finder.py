"""Where a topic is served: from the mirrors when its bundle is owned; otherwise somebody has to assign it.

Whatever the number of those who look for topics of an unowned bundle, it is asked for once.
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
"""Bundles that are asked for at the same time."""

RINGS_MAX: Final = 3
"""How often a topic is looked for again because its ring was cut differently meanwhile."""

_CLOSED: Final = "this process is shutting down; look it up elsewhere"


class Assigner(Protocol):
    """Assigns bundles to owners."""

    async def assign(self, namespace: NamespaceName, bundle: BundleRange) -> str:
        """Have some broker own the bundle; returns the id of who does, at once when one does already.

        Raises NamespaceNotFound, ServiceNotReady when no broker takes it now or the ring is cut differently,
        MetadataError.
        """
        ...


class TopicFinder:
    """Answers lookups. Its mirrors are started and closed by who made them."""

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
        """Wait for no assignment any more: who does is told to look elsewhere. Idempotent."""
        self._closed = True
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)

    async def find(self, topic: TopicName, listener: str = "") -> BrokerRegistration:
        """The broker that serves the topic, which has addresses for that advertised listener.

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
        """The broker that owns the bundle, as far as is known; None when none that is up does."""
        owned = self.owners.owner_of(namespace, bundle)
        if owned is None:
            return None
        found = self.directory.get(owned.broker_id)
        return found if found is not None and found.run == owned.run else None

    async def assigned(self, namespace: NamespaceName, bundle: BundleRange) -> BrokerRegistration:
        """The broker that owns the bundle, once it is assigned to one. Raises as `find`."""
        asked = self._asked.get((namespace, bundle)) or self._ask(namespace, bundle)
        # Not awaited itself: one impatient client must not end it for the others.
        await asyncio.wait([asked])
        if asked.cancelled():
            raise ServiceNotReady(_CLOSED)
        broker_id = asked.result()
        found = self.directory.get(broker_id)
        if found is None:
            raise ServiceNotReady(
                f"bundle {bundle} of {namespace} went to {broker_id}, which is not known to be up; "
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
                task.exception()  # nobody may be left who takes it

        task = asyncio.create_task(assign(), name=f"assign {bundle} of {namespace}")
        task.add_done_callback(done)
        self._asked[namespace, bundle] = task
        return task
