"""Routes that skip, expire or reset backlogs; most also work on all partitions at once."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.backlogs import nth_unacked, skip
from magnetar.broker.admin.objects.partitions import on_topic, same
from magnetar.broker.admin.objects.subscriptions import (
    LATEST,
    on_stored_subscription,
    reset_data,
    subscription_routes,
)
from magnetar.broker.admin.objects.topics import (
    load,
    owned_topic_routes,
    partitions_of,
    persistent,
    stored,
    stored_subscription,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_SLICE_ENTRIES: Final = 1_000


async def _skip_all(call: Call) -> web.Response:
    async def clear(topic: PersistentTopic, subscription: Subscription) -> None:
        await skip(subscription, topic.ledger.last_position)

    await on_stored_subscription(call, "Clearing a backlog", clear)
    return done()


async def _skip_some(call: Call) -> web.Response:
    count = call.number("count")
    if count < 0:
        raise Refused(400, "the number of messages must be 0 or more")
    topic = await persistent(call, "Skipping messages")
    subscription = stored_subscription(topic, call.subscription)
    position = await nth_unacked(topic.ledger, subscription, count) if count else None
    if count:
        await skip(subscription, topic.ledger.read_limit() if position is None else position)
    return done()


async def _reset_to_time(call: Call) -> web.Response:
    time_ms = call.number("timestamp")

    async def seek(topic: PersistentTopic, subscription: Subscription) -> None:
        await topic.subscriptions.seek_time(subscription, time_ms)

    await on_stored_subscription(call, "Resetting a cursor", seek)
    return done()


async def _reset_to_id(call: Call) -> web.Response:
    body = await call.json()
    position, excluded, _ = reset_data(body)
    if await partitions_of(call) and 0 <= position.ledger_id < LATEST:
        raise Refused(405, "Reset-cursor at position is not allowed for partitioned-topic")
    if excluded and 0 <= position.ledger_id < LATEST:
        position = Position(position.ledger_id, position.entry_id + 1)

    async def seek(topic: PersistentTopic, subscription: Subscription) -> None:
        await topic.subscriptions.seek(subscription, position, None)

    await on_stored_subscription(call, "Resetting a cursor", seek, body)
    return done()


async def _expire(call: Call) -> web.Response:
    seconds = _age(call)

    async def expire(topic: PersistentTopic, subscription: Subscription) -> None:
        await _expire_on(call, topic, [subscription], seconds)

    await on_stored_subscription(call, "Expiring messages", expire)
    return done()


async def _expire_everywhere(call: Call) -> web.Response:
    seconds = _age(call)

    async def here(name: TopicName) -> None:
        topic = stored(await load(call.broker, name), "Expiring messages")
        await _expire_on(call, topic, list(topic.subscriptions.values()), seconds)

    await on_topic(call, here, same(call))
    return done()


def _age(call: Call) -> int:
    """Returns the age in the path, in seconds. Raises Refused."""
    seconds = call.number("seconds")
    if seconds < 0:
        raise Refused(400, "the age must be 0 or more seconds")
    return seconds


async def _expire_on(
    call: Call, topic: PersistentTopic, subscriptions: list[Subscription], seconds: int
) -> None:
    now_ms = call.broker.ledgers.clock.wall_ms()
    for subscription in subscriptions:
        position = await topic.ledger.find_before_publish_time(now_ms - seconds * 1000)
        await _expire_through(subscription, position, now_ms)


async def _expire_through(subscription: Subscription, position: Position, now_ms: int) -> None:
    """Expires messages as if their time to live had passed; statistics count them as expired."""
    if position > subscription.cursor.mark_delete:
        subscription.expire_to(position, now_ms)
    await skip(subscription, position)


async def _expire_to_id(call: Call) -> web.Response:
    position, excluded, _ = reset_data(await call.json())
    topic = await persistent(call, "Expire message at position")
    subscription = stored_subscription(topic, call.subscription)
    if excluded:
        position = Position(position.ledger_id, position.entry_id - 1)
    now_ms = call.broker.ledgers.clock.wall_ms()
    await _expire_through(subscription, min(position, topic.ledger.read_limit()), now_ms)
    return done()


ROUTES: Final = [
    *subscription_routes("POST", "skip_all", _skip_all, "Clear the backlog of a subscription.", status=204),
    *subscription_routes(
        "POST", "skip/{count}", _skip_some, "Skip a number of entries of a backlog.", status=204
    ),
    *subscription_routes(
        "POST",
        "resetcursor/{timestamp}",
        _reset_to_time,
        "Reset a subscription to the first message at or after a time (ms since 1970).",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "resetcursor",
        _reset_to_id,
        "Reset a subscription to a message, or to the message after it (`excluded`).",
        body="ResetCursorData",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "expireMessages/{seconds}",
        _expire,
        "Expire the messages of a subscription older than a number of seconds.",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "expireMessages",
        _expire_to_id,
        "Expire the messages of a subscription up to a message, including it unless `excluded`.",
        body="ResetCursorData",
        status=204,
    ),
    *owned_topic_routes(
        "POST",
        "all_subscription/expireMessages/{seconds}",
        _expire_everywhere,
        "Expire messages older than a number of seconds on all subscriptions.",
        status=204,
        errors={405: "the topic is not persistent"},
        operation=Operation.TOPIC_CONSUME,
    ),
]
