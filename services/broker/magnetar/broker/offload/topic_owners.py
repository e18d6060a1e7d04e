"""Whose a topic is, as jobs need it: ours, or where to ask instead."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.ownership.cluster import Cluster
from magnetar.common.errors import ServiceNotReady
from magnetar.common.naming.topic_name import TopicName


class TopicOwners(Protocol):
    """Who has what."""

    async def elsewhere(self, topic: TopicName) -> str:
        """Where to ask the broker that owns the topic, host:port; empty when that is this one.

        Raises NamespaceNotFound, ServiceNotReady when that cannot be said now, MetadataError.
        """
        ...


class SoleOwner:
    """Standalone: every topic is ours."""

    async def elsewhere(self, topic: TopicName) -> str:
        return ""


class ClusterOwners:
    """By the bundles of a cluster; an unowned one is assigned."""

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
                f"broker {owner.broker_id}, which owns {topic}, does not say where to ask it"
            )
        return owner.control_address
