"""Deletes inactive topics after a time set by policies.

A topic is inactive without clients and without subscriptions or, in the other mode, without a backlog. Only
loaded topics are checked. As in Apache Pulsar, retention by time also keeps a topic: it is not deleted before
its messages are old enough to be trimmed, and never with unlimited retention; retention by size has no
effect.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from magnetar.broker.policies.effective_policies import DELETE_WHEN_NO_SUBSCRIPTIONS
from magnetar.broker.topics.registry.partitioned_topics import PartitionedTopics
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import ServiceNotReady, TopicBusy, TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.managed_ledger.context import Restored
from prometheus_client import Counter

log = get_logger(__name__)

DELETED: Final = Counter(
    "magnetar_inactive_topics_deleted_total",
    "Topics and partitions deleted because they were inactive.",
    registry=REGISTRY,
)


class InactiveTopics:
    """Housekeeping's check for inactive topics.

    `partitioned` deletes the metadata of a partitioned topic whose partitions are all deleted; None keeps it.
    While `restored` holds deletions back, nothing is deleted.
    """

    def __init__(
        self, registry: TopicRegistry, partitioned: PartitionedTopics | None, clock: Clock, restored: Restored
    ) -> None:
        self._registry = registry
        self._partitioned = partitioned
        self._clock = clock
        self._restored = restored

    def look(self, topic: Topic) -> Awaitable[object] | None:
        policies = topic.policies
        if not policies.inactive_delete or self._restored.holds:
            return None
        if _in_use(topic):
            topic.inactive_since = None
            return None
        now = self._clock.monotonic()
        if topic.inactive_since is None:
            topic.inactive_since = now
        inactive_s = now - topic.inactive_since
        if inactive_s < policies.inactive_s or _retained(topic, inactive_s):
            return None
        return self._delete(topic)

    async def _delete(self, topic: Topic) -> None:
        without = topic.policies.inactive_mode == DELETE_WHEN_NO_SUBSCRIPTIONS
        try:
            await self._registry.delete(topic.name, force=False, unless_subscribed=without, keep_grants=True)
        except (TopicBusy, TopicNotFound, ServiceNotReady) as error:
            log.info("inactive topic not deleted", topic=topic.name.full, why=str(error))
            return
        DELETED.inc()
        log.info("inactive topic deleted", topic=topic.name.full)
        if self._partitioned is not None and topic.name.partition_index >= 0:
            await self._delete_metadata(self._partitioned, topic.name.base)

    async def _delete_metadata(self, partitioned: PartitionedTopics, name: TopicName) -> None:
        for index in range(await self._registry.partitions(name)):
            if await self._registry.exists(name.partition(index)):
                return
        try:
            # A client that has connected since then keeps the topic.
            await partitioned.delete_partitioned(name, force=False, unless_partitions=True)
        except (TopicBusy, TopicNotFound, ServiceNotReady) as error:
            log.info("metadata of inactive partitions not deleted", topic=name.full, why=str(error))


def _in_use(topic: Topic) -> bool:
    if topic.has_clients:
        return True
    if topic.policies.inactive_mode == DELETE_WHEN_NO_SUBSCRIPTIONS:
        return bool(topic.subscriptions)
    return any(each.backlog() for each in topic.subscriptions.values())


def _retained(topic: Topic, inactive_s: float) -> bool:
    minutes = topic.policies.retention_time_min
    return topic.name.persistent and (minutes < 0 or inactive_s < minutes * 60)
