"""Expiry of subscriptions: durable ones without consumers are deleted after a time set by policy.

The time counts from the first check that found no consumer, so it restarts when the topic is loaded, and a
subscription may live longer than the policy allows by the interval between two checks.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.clock import Clock
from prometheus_client import Counter

log = get_logger(__name__)

EXPIRED: Final = Counter(
    "magnetar_subscriptions_expired_total",
    "Subscriptions deleted because they had no consumers for too long.",
    registry=REGISTRY,
)


class SubscriptionExpiry:
    """Deletes subscriptions that were idle for too long; run by housekeeping."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def look(self, topic: Topic) -> Awaitable[object] | None:
        """Returns the work to do for one topic; None when there is none."""
        minutes = topic.policies.subscription_expiration_min
        if minutes <= 0 or not isinstance(topic, PersistentTopic):
            return None
        now = self._clock.monotonic()
        expired = [each for each in topic.subscriptions.values() if _idle_s(each, now) > minutes * 60]
        return self._delete(topic, expired, minutes * 60) if expired else None

    async def _delete(self, topic: PersistentTopic, expired: list[Subscription], idle_s_max: int) -> None:
        for subscription in expired:
            # A consumer may have connected and disconnected while other subscriptions were deleted.
            expired_still = partial(self._is_expired, subscription, idle_s_max)
            if await topic.subscriptions.delete_unused(subscription, expired_still):
                EXPIRED.inc()
                log.info("subscription expired", topic=topic.name.full, subscription=subscription.name)

    def _is_expired(self, subscription: Subscription, idle_s_max: int) -> bool:
        return _idle_s(subscription, self._clock.monotonic()) > idle_s_max


def _idle_s(subscription: Subscription, now: float) -> float:
    if subscription.consumers or not subscription.cursor.durable:
        return 0.0
    if subscription.idle_since is None:
        subscription.idle_since = now
    return now - subscription.idle_since
