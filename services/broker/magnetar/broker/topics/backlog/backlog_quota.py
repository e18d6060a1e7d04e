"""Backlog quotas: what happens when the slowest durable subscription is too far behind, in bytes or in time.

Where producers are to wait or to fail, those that are connected are disconnected at the next look, and new
ones are refused until the backlog is below the limit again, which is looked at when they ask. Where the
backlog is to go, the slowest subscriptions skip ahead until it is 90 % of the limit, and nobody else notices.
Messaging contract, section 19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.broker.policies.effective import EVICT, HOLD, EffectivePolicies, Quota
from magnetar.broker.topics.backlog.topic_backlog import backlog_bytes, oldest_age_s
from magnetar.common.errors import ProducerBlocked, ProducerQuotaExceeded
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from prometheus_client import Counter

if TYPE_CHECKING:
    from magnetar.broker.topics.persistent_topic import PersistentTopic

log = get_logger(__name__)

SIZE: Final = "size"
TIME: Final = "time"

EVICTIONS: Final = Counter(
    "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
    "Times that subscriptions had to skip ahead because of a backlog quota, by its type.",
    ["quota_type"],
    registry=REGISTRY,
)
begin_at_zero(EVICTIONS, SIZE, TIME)

DISCONNECTIONS: Final = Counter(
    "magnetar_backlog_quota_disconnected_producers_total",
    "Producers that were disconnected because of a backlog quota, by its type.",
    ["quota_type"],
    registry=REGISTRY,
)
begin_at_zero(DISCONNECTIONS, SIZE, TIME)

_KEPT_PERCENT: Final = 90


def has_quota(policies: EffectivePolicies) -> bool:
    """True when there is any limit to look after."""
    return policies.size_quota.limit >= 0 or policies.time_quota.limit > 0


async def exceeded(topic: PersistentTopic, now_ms: int) -> list[tuple[str, Quota]]:
    """Which of the topic's quotas are exceeded now: SIZE, TIME. Raises StorageError.

    Each with the quota that is: the policies may be others once this has read how old the backlog is.
    """
    found = []
    size, time = topic.policies.size_quota, topic.policies.time_quota
    if 0 <= size.limit <= backlog_bytes(topic):
        found.append((SIZE, size))
    if 0 < time.limit < await oldest_age_s(topic, now_ms):
        found.append((TIME, time))
    return found


async def refuse_producer(topic: PersistentTopic, now_ms: int) -> None:
    """Raises ProducerBlocked or ProducerQuotaExceeded while a quota keeps producers out."""
    for kind, quota in await exceeded(topic, now_ms):
        if quota.policy != EVICT:
            refused = ProducerBlocked if quota.policy == HOLD else ProducerQuotaExceeded
            raise refused(
                f"the backlog of topic {topic.name} is beyond its {kind} quota; it has to be consumed first"
            )


async def enforce(topic: PersistentTopic, now_ms: int) -> None:
    """Do what the topic's policies say about each quota that is exceeded."""
    for kind, quota in await exceeded(topic, now_ms):
        if quota.policy == EVICT:
            await _evict(topic, kind, quota.limit, now_ms)
        elif topic.producers:
            log.warning("backlog quota exceeded, producers disconnected", topic=topic.name.full, quota=kind)
            DISCONNECTIONS.labels(kind).inc(len(topic.producers))
            for producer in list(topic.producers.values()):
                topic.disconnect_producer(producer)


async def _evict(topic: PersistentTopic, kind: str, limit: int, now_ms: int) -> None:
    if kind == SIZE:
        target = topic.ledger.spans.position_before_last(limit * _KEPT_PERCENT // 100)
    else:
        young_enough_ms = now_ms - limit * 10 * _KEPT_PERCENT
        target = await topic.ledger.find_before_publish_time(young_enough_ms)
    skipped = 0
    for subscription in list(topic.subscriptions.values()):
        if subscription.cursor.durable and subscription.cursor.mark_delete < target:
            skipped += subscription.skip_to(target)
    EVICTIONS.labels(kind).inc()
    log.warning("backlog quota exceeded, backlog skipped", topic=topic.name.full, quota=kind, entries=skipped)
