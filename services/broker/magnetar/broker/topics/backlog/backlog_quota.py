"""Backlog quotas: limits on the backlog of the slowest durable subscription, in bytes and in time.

Under the policies that hold or refuse producers, connected producers are disconnected at the next check. New
ones are refused until the backlog is below the limit again, which is checked when they connect. Under the
eviction policy the slowest subscriptions skip ahead until the backlog is 90 % of the limit; the others are
not affected. Messaging contract, section 19.
"""

from __future__ import annotations

from typing import Final

from magnetar.broker.client_endings import EndCode
from magnetar.broker.policies.effective_policies import EVICT, HOLD, Quota
from magnetar.broker.topics.backlog.backlog import Backlog
from magnetar.broker.topics.publish.producers import Producers
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import ProducerBlocked, ProducerQuotaExceeded
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.clock import Clock
from prometheus_client import Counter

log = get_logger(__name__)

SIZE: Final = "size"
TIME: Final = "time"

EVICTIONS: Final = Counter(
    "pulsar_broker_storage_backlog_quota_exceeded_evictions_total",
    "Times that subscriptions skipped entries because of a backlog quota, by quota type.",
    ["quota_type"],
    registry=REGISTRY,
)
begin_at_zero(EVICTIONS, SIZE, TIME)

DISCONNECTIONS: Final = Counter(
    "magnetar_backlog_quota_disconnected_producers_total",
    "Producers disconnected because of a backlog quota, by quota type.",
    ["quota_type"],
    registry=REGISTRY,
)
begin_at_zero(DISCONNECTIONS, SIZE, TIME)

_KEPT_PERCENT: Final = 90


class BacklogQuota:
    """Checks and enforces the quotas in the policies of one topic."""

    __slots__ = ("_backlog", "_clock", "_state")

    def __init__(self, state: TopicState, backlog: Backlog, clock: Clock) -> None:
        self._state = state
        self._backlog = backlog
        self._clock = clock

    @property
    def limited(self) -> bool:
        """True when the policies in force set a quota."""
        policies = self._state.policies
        return policies.size_quota.limit >= 0 or policies.time_quota.limit > 0

    async def check_producer(self) -> None:
        """Refuses a producer while a quota is exceeded. Raises ProducerBlocked or ProducerQuotaExceeded,
        StorageError.
        """
        if not self.limited:
            return
        for kind, quota in await self._exceeded(self._clock.wall_ms()):
            if quota.policy != EVICT:
                refused = ProducerBlocked if quota.policy == HOLD else ProducerQuotaExceeded
                raise refused(
                    f"the backlog of topic {self._state.name} exceeds its {kind} quota; consume the "
                    "backlog or raise the quota"
                )

    async def enforce(self, producers: Producers) -> None:
        """Applies the policy of each exceeded quota: disconnects `producers`, or skips backlog.

        Raises StorageError.
        """
        now_ms = self._clock.wall_ms()
        for kind, quota in await self._exceeded(now_ms):
            if quota.policy == EVICT:
                await self._evict(kind, quota.limit, now_ms)
            elif producers:
                log.warning(
                    "backlog quota exceeded, producers disconnected", topic=self._state.name.full, quota=kind
                )
                DISCONNECTIONS.labels(kind).inc(len(producers))
                for producer in list(producers.values()):
                    producers.disconnect(producer, EndCode.BACKLOG_QUOTA)

    async def _exceeded(self, now_ms: int) -> list[tuple[str, Quota]]:
        """Returns the quotas that are exceeded now: SIZE, TIME. Raises StorageError.

        Each comes with the limits it was checked against: policies may change while the age of the backlog is
        read.
        """
        found = []
        size, time = self._state.policies.size_quota, self._state.policies.time_quota
        if 0 <= size.limit <= self._backlog.byte_length:
            found.append((SIZE, size))
        if 0 < time.limit < await self._backlog.oldest_age_s(now_ms):
            found.append((TIME, time))
        return found

    async def _evict(self, kind: str, limit: int, now_ms: int) -> None:
        if kind == SIZE:
            target = self._backlog.position_of_last_bytes(limit * _KEPT_PERCENT // 100)
        else:
            target = await self._backlog.position_before(now_ms - limit * 10 * _KEPT_PERCENT)
        skipped = self._backlog.skip_to(target)
        EVICTIONS.labels(kind).inc()
        log.warning(
            "backlog quota exceeded, backlog skipped",
            topic=self._state.name.full,
            quota=kind,
            entries=skipped,
        )
