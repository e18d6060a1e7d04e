"""Time to live: messages that nobody acknowledged in time count as acknowledged.

Every subscription skips ahead to the first entry that is young enough, with or without consumers; delayed
entries as well, before their time. Ages count from the broker's publish time. Retention may keep what
expired. Messaging contract, section 19.
"""

from __future__ import annotations

from collections.abc import Awaitable

from magnetar.broker.topics.backlog.topic_backlog import publish_time_after
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import EntryUnreadable
from magnetar.common.runtime.clock import Clock


class MessageExpiry:
    """Housekeeping's look for messages that have expired."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def look(self, topic: Topic) -> Awaitable[object] | None:
        ttl_s = topic.policies.message_ttl_s
        if ttl_s <= 0 or not isinstance(topic, PersistentTopic) or not topic.subscriptions:
            return None
        return expire_old(topic, ttl_s, self._clock.wall_ms())


async def expire_old(topic: PersistentTopic, ttl_s: int, now_ms: int) -> int:
    """Let every subscription skip what is older than `ttl_s`; returns how many entries that were, added up.

    Raises StorageError when the times cannot be read.
    """
    behind = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.backlog()]
    if not behind:
        return 0
    publish_time_ms = now_ms - ttl_s * 1000
    try:
        oldest_ms = await publish_time_after(topic, min(behind))
    except EntryUnreadable:
        oldest_ms = 0  # those after it may tell that it is old
    if oldest_ms is None or oldest_ms >= publish_time_ms:
        return 0
    position = await topic.ledger.find_before_publish_time(publish_time_ms)
    total = 0
    for subscription in list(topic.subscriptions.values()):
        if subscription.cursor.mark_delete < position:
            total += subscription.expire_to(position, now_ms)
    return total
