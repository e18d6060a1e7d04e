"""The load reporter's view of this broker: its bundles, their topics, and how to split them."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from magnetar.broker.control.broker_calls import Mover
from magnetar.broker.load.reporter import NamedTopic
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.own_bundles import OwnBundle
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName


class OwnLoad:
    """Implements `load.reporter.Owner`."""

    def __init__(self, cluster: Cluster, topics: TopicRegistry, mover: Mover) -> None:
        self._cluster = cluster
        self._table = cluster.ownership.table
        self._topics = topics
        self._mover = mover

    @property
    def draining(self) -> bool:
        return self._cluster.presence.registration.draining

    def bundles(self) -> Collection[OwnBundle]:
        return list(self._table)

    def bundle_of(self, topic: TopicName) -> OwnBundle | None:
        return self._table.of_topic(topic)

    def topics(self) -> Collection[NamedTopic]:
        return cast("Collection[NamedTopic]", self._topics.loaded.values())

    def bundles_of(self, namespace: NamespaceName) -> int:
        ring = self._cluster.rings.get(namespace)
        return 0 if ring is None else len(ring.bundles)

    async def split(self, bundle: Bundle, boundaries: list[int], *, unload: bool) -> None:
        await self._mover.split(*bundle, boundaries, unload=unload)
