"""How far a topic's durable subscriptions are behind: in bytes, and by the age of the oldest message.

The slowest one counts. Bytes are estimated as Apache Pulsar does it: exact by ledgers, averaged within one.
The age is that of the broker's own publish time. Storage is read for it only when the oldest entry is another
one than last time, so that asking again about a topic where nothing moves costs a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.common.errors import StorageError
from magnetar.common.naming.position import Position

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.subscription import Subscription
    from magnetar.broker.topics.persistent_topic import PersistentTopic

UNKNOWN_AGE_S: Final = -1


def slowest(topic: PersistentTopic) -> Subscription | None:
    """The durable subscription that is furthest behind; None without any."""
    durable = [each for each in topic.subscriptions.values() if each.cursor.durable]
    return min(durable, key=_mark_of, default=None)


def _mark_of(subscription: Subscription) -> Position:
    return subscription.cursor.mark_delete


def slowest_mark(topic: PersistentTopic) -> Position | None:
    """The mark-delete position of the slowest durable subscription; None without any."""
    found = slowest(topic)
    return None if found is None else found.cursor.mark_delete


def backlog_bytes(topic: PersistentTopic) -> int:
    """About how many bytes the slowest durable subscription is behind; 0 without any."""
    slowest = slowest_mark(topic)
    return 0 if slowest is None else topic.ledger.spans.bytes_after(slowest)


def known_last_publish_ms(topic: PersistentTopic) -> int:
    """When the topic's last message was published, as far as it is in memory; else, and without one, 0."""
    filled = (span for span in reversed(topic.ledger.spans.spans) if span.entries)
    last = next(filled, None)
    return 0 if last is None else last.max_publish_time_ms


async def last_publish_ms(topic: PersistentTopic) -> int:
    """The same, read from storage where another owner published it; 0 when it cannot be read now."""
    known = known_last_publish_ms(topic)
    if known or not topic.ledger.entries:
        return known
    try:
        runs = (await topic.ledger.read(topic.ledger.last_position, 1, 1)).runs
    except StorageError:
        return 0
    return runs[-1].publish_time_ms if runs else 0


def known_oldest_age_s(topic: PersistentTopic, now_ms: int) -> int:
    """Age of the oldest message in a backlog, as far as it is in memory; else, and without one, -1."""
    slowest = slowest_mark(topic)
    oldest = topic.oldest_entry
    if slowest is None or oldest is None or topic.ledger.next_position(slowest) != oldest[0]:
        return UNKNOWN_AGE_S
    return max(0, (now_ms - oldest[1]) // 1000)


def note_oldest(topic: PersistentTopic) -> None:
    """Keep in mind when the oldest message in a backlog was published, if that costs no read."""
    slowest = slowest_mark(topic)
    following = None if slowest is None else topic.ledger.next_position(slowest)
    if following is None or (topic.oldest_entry is not None and topic.oldest_entry[0] == following):
        return
    run = topic.ledger.read_cached(following, 1, 1)
    if run is not None:
        topic.oldest_entry = (following, run.publish_time_ms)


async def publish_time_after(topic: PersistentTopic, position: Position) -> int | None:
    """The broker's publish time of the first entry after a position, in ms; None when there is none.

    Raises StorageError when it cannot be read.
    """
    following = topic.ledger.next_position(position)
    if following is None:
        return None
    known = topic.oldest_entry
    if known is not None and known[0] == following:
        return known[1]
    run = topic.ledger.read_cached(following, 1, 1)
    if run is None:
        runs = (await topic.ledger.read(following, 1, 1)).runs
        if not runs:
            return None
        run = runs[0]
    topic.oldest_entry = (following, run.publish_time_ms)
    return run.publish_time_ms


async def oldest_age_s(topic: PersistentTopic, now_ms: int) -> int:
    """Age of the oldest message in a backlog; -1 without one. Raises StorageError."""
    slowest = slowest_mark(topic)
    published_ms = None if slowest is None else await publish_time_after(topic, slowest)
    return UNKNOWN_AGE_S if published_ms is None else max(0, (now_ms - published_ms) // 1000)


async def earliest_by_subscription(topic: PersistentTopic) -> dict[str, int]:
    """When the oldest message in each backlog was published, by subscription. Raises StorageError.

    The slowest one comes last, and so is the one that is kept in mind.
    """
    found = {}
    for subscription in sorted(topic.subscriptions.values(), key=_mark_of, reverse=True):
        published_ms = await publish_time_after(topic, subscription.cursor.mark_delete)
        if published_ms is not None:
            found[subscription.name] = published_ms
    return found
