"""Backlogs over HTTP: skipped, expired, read again; those of all partitions at once where it can be."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from magnetar.broker.admin.call import Call, done
from magnetar.broker.admin.http_errors import Refused
from magnetar.broker.admin.subscription_calls import LATEST, reset_data, stored_parts, subscription_routes
from magnetar.broker.admin.topic_calls import (
    all_parts,
    partitions_of,
    persistent,
    stored,
    stored_subscription,
)
from magnetar.broker.admin.topics import topic_routes
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_SLICE_ENTRIES: Final = 1_000


async def _skip_all(call: Call) -> web.Response:
    for topic, subscription in await stored_parts(call, "Clearing a backlog"):
        await _skip(subscription, topic.ledger.last_position)
    return done()


async def _skip_some(call: Call) -> web.Response:
    count = call.number("count")
    if count < 0:
        raise Refused(400, "the number of messages must be 0 or more")
    topic = await persistent(call, "Skipping messages")
    subscription = stored_subscription(topic, call.subscription)
    position = await nth_unacked(topic.ledger, subscription, count) if count else None
    if count:
        await _skip(subscription, topic.ledger.last_position if position is None else position)
    return done()


async def nth_unacked(ledger: ManagedLedger, subscription: Subscription, count: int) -> Position | None:
    """The `count`th entry (from 1 on) that is not acknowledged; None when there are not so many."""
    cursor = subscription.cursor
    if count > cursor.backlog():
        return None
    position: Position | None = cursor.mark_delete
    seen = 0
    while position is not None:
        position = ledger.next_position(position)
        if position is not None and not cursor.is_acked(*position):
            count -= 1
            if not count:
                return position
        seen += 1
        if seen % _SLICE_ENTRIES == 0:
            await asyncio.sleep(0)
    return None


async def _reset_to_time(call: Call) -> web.Response:
    time_ms = call.number("timestamp")
    for topic, subscription in await stored_parts(call, "Resetting a cursor"):
        await topic.seek_time(subscription, time_ms)
    return done()


async def _reset_to_id(call: Call) -> web.Response:
    position, excluded, _ = reset_data(await call.json())
    if await partitions_of(call) and 0 <= position.ledger_id < LATEST:
        raise Refused(405, "Reset-cursor at position is not allowed for partitioned-topic")
    if excluded and 0 <= position.ledger_id < LATEST:
        position = Position(position.ledger_id, position.entry_id + 1)
    for topic, subscription in await stored_parts(call, "Resetting a cursor"):
        await topic.seek(subscription, position, None)
    return done()


async def _expire(call: Call) -> web.Response:
    await _expire_on(call, await stored_parts(call, "Expiring messages"))
    return done()


async def _expire_everywhere(call: Call) -> web.Response:
    for topic in await all_parts(call):
        found = stored(topic, "Expiring messages")
        await _expire_on(call, [(found, each) for each in found.subscriptions.values()])
    return done()


async def _expire_on(call: Call, parts: list[tuple[PersistentTopic, Subscription]]) -> None:
    seconds = call.number("seconds")
    if seconds < 0:
        raise Refused(400, "the age must be 0 or more seconds")
    before_ms = call.broker.ledgers.clock.wall_ms() - seconds * 1000
    for topic, subscription in parts:
        await _skip(subscription, await topic.ledger.find_before_publish_time(before_ms))


async def _expire_to_id(call: Call) -> web.Response:
    position, excluded, _ = reset_data(await call.json())
    topic = await persistent(call, "Expire message at position")
    subscription = stored_subscription(topic, call.subscription)
    if excluded:
        position = Position(position.ledger_id, position.entry_id - 1)
    await _skip(subscription, min(position, topic.ledger.last_position))
    return done()


async def _skip(subscription: Subscription, position: Position) -> None:
    """Acknowledge everything up to `position`; durable on return."""
    if position > subscription.cursor.mark_delete:
        subscription.skip_to(position)
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def flushed(error: MagnetarError | None) -> None:
        if written.done():
            return
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)

    subscription.when_persisted(flushed)
    await written


ROUTES: Final = [
    *subscription_routes("POST", "skip_all", _skip_all, "Acknowledge the whole backlog.", status=204),
    *subscription_routes("POST", "skip/{count}", _skip_some, "Acknowledge the next entries.", status=204),
    *subscription_routes(
        "POST",
        "resetcursor/{timestamp}",
        _reset_to_time,
        "Go on with the first message at or after a time (ms since 1970).",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "resetcursor",
        _reset_to_id,
        "Go on with a message, or behind it (excluded).",
        body="ResetCursorData",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "expireMessages/{seconds}",
        _expire,
        "Acknowledge messages that are older.",
        status=204,
    ),
    *subscription_routes(
        "POST",
        "expireMessages",
        _expire_to_id,
        "Acknowledge everything up to a message, which stays if it is excluded.",
        body="ResetCursorData",
        status=204,
    ),
    *topic_routes(
        "POST",
        "all_subscription/expireMessages/{seconds}",
        _expire_everywhere,
        "Acknowledge messages that are older, on all subscriptions.",
        status=204,
        errors={405: "not on a non-persistent topic"},
    ),
]
