"""Time to live: messages that are not acknowledged in time count as acknowledged.

Every subscription skips ahead to the first entry that is young enough, with or without consumers; delayed
entries expire as well, even before they are due. Ages count from the broker's publish time. Retention may
keep expired entries. Messaging contract, section 19.
"""

from __future__ import annotations

from collections.abc import Awaitable

from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import EntryUnreadable
from magnetar.common.runtime.clock import Clock


class MessageExpiry:
    """Expires messages of topics that have a time to live; run by housekeeping."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def look(self, topic: Topic) -> Awaitable[object] | None:
        """Returns the work to do for one topic; None when there is none."""
        ttl_s = topic.policies.message_ttl_s
        if ttl_s <= 0 or not isinstance(topic, PersistentTopic) or not topic.subscriptions:
            return None
        return expire_old(topic, ttl_s, self._clock.wall_ms())


async def expire_old(topic: PersistentTopic, ttl_s: int, now_ms: int) -> int:
    """Lets every subscription skip entries older than `ttl_s`; returns their number, over all subscriptions.

    Raises StorageError when publish times cannot be read.
    """
    behind = [each.cursor.mark_delete for each in topic.subscriptions.values() if each.backlog()]
    if not behind:
        return 0
    publish_time_ms = now_ms - ttl_s * 1000
    try:
        oldest_ms = await topic.backlog.publish_time_after(min(behind))
    except EntryUnreadable:
        oldest_ms = 0  # unknown; the entries after it may be readable and old
    if oldest_ms is None or oldest_ms >= publish_time_ms:
        return 0
    position = await topic.ledger.find_before_publish_time(publish_time_ms)
    total = 0
    for subscription in list(topic.subscriptions.values()):
        if subscription.cursor.mark_delete < position:
            total += subscription.expire_to(position, now_ms)
    return total
