"""Non-persistent topics of other brokers, which are known only to their owners."""

from __future__ import annotations

import asyncio

from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.control.control_client import ControlClient
from magnetar.common.control.control_pb2 import NonPersistentTopicsRequest
from magnetar.common.control.methods import NON_PERSISTENT_TOPICS
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName


class TopicsElsewhere:
    """Topics loaded on other brokers."""

    def __init__(self, cluster: Cluster, client: ControlClient) -> None:
        self._cluster = cluster
        self._client = client

    async def non_persistent(self, namespace: NamespaceName) -> list[str]:
        """Returns full names of the namespace's topics that are loaded on other brokers, system topics
        included.

        Raises ServiceNotReady when one of these brokers does not answer, NamespaceNotFound, MetadataError.
        """
        found = await asyncio.gather(
            *(self._of_broker(broker, namespace) for broker in await self.owners(namespace))
        )
        return [name for names in found for name in names]

    async def owners(self, namespace: NamespaceName) -> list[BrokerRegistration]:
        """Returns the other brokers that own a bundle of the namespace, by id.

        Raises NamespaceNotFound, MetadataError.
        """
        cluster = self._cluster
        ring = cluster.rings.get(namespace) or await cluster.rings.load(namespace)
        owners: dict[str, BrokerRegistration] = {}
        for bundle in ring.bundles:
            owner = cluster.ownership.finder.owner(namespace, bundle)
            if owner is not None and not cluster.presence.is_run(owner.broker_id, owner.run):
                owners[owner.broker_id] = owner
        return [owner for _, owner in sorted(owners.items())]

    async def _of_broker(self, broker: BrokerRegistration, namespace: NamespaceName) -> list[str]:
        names: list[str] = []
        while True:
            request = NonPersistentTopicsRequest(namespace=str(namespace), after=names[-1] if names else "")
            answer = await self._client.call(broker, NON_PERSISTENT_TOPICS, request)
            names += answer.topics
            if not answer.more:
                return names
            if not answer.topics:
                raise ServiceNotReady(f"broker {broker.broker_id} did not list its topics")
