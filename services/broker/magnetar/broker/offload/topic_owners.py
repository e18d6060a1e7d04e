"""Owners of topics as jobs need them: this broker, or the address of another."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.topic_name import TopicName


class TopicOwners(Protocol):
    """Finds the owner of a topic."""

    async def elsewhere(self, topic: TopicName) -> str:
        """Returns host:port of the broker that owns the topic; empty when it is this one.

        Raises NamespaceNotFound, ServiceNotReady when the owner is not known now, MetadataError.
        """
        ...


class SoleOwner:
    """Owner of all topics in a standalone: this broker."""

    async def elsewhere(self, topic: TopicName) -> str:
        return ""


class ClusterOwners:
    """Finds owners by the bundles of a cluster; an unowned bundle is assigned."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def elsewhere(self, topic: TopicName) -> str:
        ownership, presence = self._cluster.ownership, self._cluster.presence
        await ownership.settled(topic)
        owner = await ownership.finder.find(topic)
        if presence.is_run(owner.broker_id, owner.run):
            return ""
        if not owner.control_address:
            raise ServiceNotReady(
                f"broker {owner.broker_id}, which owns {topic}, has not registered an address for these calls"
            )
        return owner.control_address
