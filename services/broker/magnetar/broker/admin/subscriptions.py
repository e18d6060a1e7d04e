"""Subscriptions over HTTP: made, deleted, moved and emptied. On a partitioned topic it is done on each
partition, where that has a meaning.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.call import Call, answer, done, text_map
from magnetar.broker.admin.http_errors import Refused
from magnetar.broker.admin.routing import Route
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
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import MagnetarError, NotSupportedYet, TopicNotFound
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_LATEST: Final = 2**63 - 1
_SLICE_ENTRIES: Final = 1_000


async def _list(call: Call) -> web.Response:
    found: dict[str, None] = {}
    for topic in await all_parts(call):
        found.update(dict.fromkeys(topic.subscriptions))
    return answer(list(found))


async def _create(call: Call) -> web.Response:
    name = call.subscription
    start, properties = _start_of(await call.json_or("latest"))
    broker, topic = call.broker, call.topic
    count = await partitions_of(call)
    if count and start is not None and -1 < start.ledger_id < _LATEST:
        raise Refused(405, "Creating a subscription at a message id of a partitioned topic is not allowed")
    if not count and not await broker.registry.exists(topic):
        if not (await broker.policies.of_namespace(topic.namespace)).auto_topic_creation:
            raise Refused(412, "Topic does not exist and cannot be auto-created")
        count = await broker.partitioned.ask(topic, create=True)
    made = False
    for each in [topic.partition(index) for index in range(count)] or [topic]:
        one = stored(await broker.registry.get(each, create=True), "Creating a subscription")
        made |= await one.new_subscription(name, _mark_delete_for(one.ledger, start), properties)
    if not made:
        raise Refused(409, "Subscription already exists for topic")
    return done()


def _start_of(value: Any) -> tuple[Position | None, dict[str, str]]:
    """Where a new subscription begins (None: the end of the topic), and its properties."""
    if value == "latest":
        return None, {}
    if value == "earliest":
        return Position(-1, -1), {}
    position, excluded, given = _reset_data(value)
    if excluded and 0 <= position.ledger_id < _LATEST:
        position = Position(position.ledger_id, position.entry_id + 1)
    return (None if position.ledger_id >= _LATEST else position), text_map(given.get("properties") or {})


def _reset_data(value: Any) -> tuple[Position, bool, dict[str, Any]]:
    """A message id with `excluded`, as clients send it."""
    if not isinstance(value, dict):
        raise Refused(400, "the position must be an object with ledgerId and entryId, latest or earliest")
    ids = []
    for key in ("ledgerId", "entryId"):
        number = value.get(key, -1)
        if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= _LATEST:
            raise Refused(400, f"{key} must be a whole number from -1 on")
        ids.append(number)
    excluded = value.get("excluded", value.get("isExcluded", False))
    return Position(ids[0], ids[1]), excluded is True, value


def _mark_delete_for(ledger: ManagedLedger, start: Position | None) -> Position:
    """The mark-delete position that makes the entry at `start` the next one."""
    first, last = ledger.first_position(), ledger.last_position
    if start is None:
        return last
    if start.ledger_id < 0:
        return first
    return min(max(Position(start.ledger_id, start.entry_id - 1), first), last)


async def _delete(call: Call) -> web.Response:
    name, force = call.subscription, call.flag("force")
    found = await _parts_with(call, name)
    for topic, subscription in found:
        if subscription.consumers and not force:
            raise Refused(412, "Subscription has active connected consumers")
        while subscription.name in topic.subscriptions and not await _deleted(topic, subscription):
            if not force:
                raise Refused(412, "Subscription has active connected consumers")
            await topic.unsubscribe(subscription, subscription.consumers[0], force=True)
    return done()


async def _deleted(topic: Topic, subscription: Any) -> bool:
    if isinstance(topic, PersistentTopic):
        return await topic.delete_unused(subscription)
    return False


async def _properties(call: Call) -> web.Response:
    found = await _parts_with(call, call.subscription)
    first = found[0][1]
    return answer(dict(first.properties) if isinstance(first, Subscription) else {})


async def _put_properties(call: Call) -> web.Response:
    await _parts_with(call, call.subscription)
    raise NotSupportedYet(
        "the properties of a subscription cannot be changed yet; give them in the PUT that makes it"
    )


async def _skip_all(call: Call) -> web.Response:
    for topic, subscription in await _stored_parts(call, "Clearing a backlog"):
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
    for topic, subscription in await _stored_parts(call, "Resetting a cursor"):
        await topic.seek_time(subscription, time_ms)
    return done()


async def _reset_to_id(call: Call) -> web.Response:
    position, excluded, _ = _reset_data(await call.json())
    if await partitions_of(call) and 0 <= position.ledger_id < _LATEST:
        raise Refused(405, "Reset-cursor at position is not allowed for partitioned-topic")
    if excluded and 0 <= position.ledger_id < _LATEST:
        position = Position(position.ledger_id, position.entry_id + 1)
    for topic, subscription in await _stored_parts(call, "Resetting a cursor"):
        await topic.seek(subscription, position, None)
    return done()


async def _expire(call: Call) -> web.Response:
    await _expire_on(call, await _stored_parts(call, "Expiring messages"))
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
    position, excluded, _ = _reset_data(await call.json())
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


async def _parts_with(call: Call, name: str) -> list[tuple[Topic, Any]]:
    """The topic, or its partitions, that have the subscription. Raises Refused (404) when none has."""
    parts = await all_parts(call)
    found = [(topic, topic.subscriptions[name]) for topic in parts if name in topic.subscriptions]
    if not found:
        if not parts:
            raise TopicNotFound("Topic partitions were not yet created")
        raise Refused(404, f"Subscription {name} not found for topic {call.topic}")
    return found


async def _stored_parts(call: Call, what: str) -> list[tuple[PersistentTopic, Subscription]]:
    return [
        (topic, stored_subscription(topic, call.subscription))
        for each, _ in await _parts_with(call, call.subscription)
        for topic in [stored(each, what)]
    ]


_SUBSCRIPTION: Final = "subscription/{subscription}"
_NO_SUCH: Final = {
    404: "Namespace not found; Topic not found; Subscription not found",
    405: "not on a non-persistent topic; not on a partitioned one where a message id or count is meant",
}


def _routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    errors = {**_NO_SUCH, **more.pop("errors", {})}
    path = f"{_SUBSCRIPTION}/{name}" if name else _SUBSCRIPTION
    return topic_routes(method, path, handler, summary, errors=errors, **more)


ROUTES: Final = [
    *topic_routes("GET", "subscriptions", _list, "The subscriptions of a topic.", answer="List<String>"),
    *_routes(
        "PUT",
        "",
        _create,
        "Make a subscription, at the end of the topic unless told otherwise.",
        body="ResetCursorData",
        status=204,
        errors={
            409: "Subscription already exists for topic",
            412: "Topic does not exist and cannot be auto-created",
        },
    ),
    *_routes(
        "DELETE",
        "",
        _delete,
        "Delete a subscription with its backlog.",
        query=("force:boolean=false",),
        status=204,
        errors={412: "Subscription has active connected consumers"},
    ),
    *_routes("GET", "properties", _properties, "Its properties.", answer="Map<String, String>"),
    *_routes(
        "PUT",
        "properties",
        _put_properties,
        "Change its properties.",
        body="Map<String, String>",
        status=204,
        errors={501: "not yet"},
    ),
    *_routes("POST", "skip_all", _skip_all, "Acknowledge the whole backlog.", status=204),
    *_routes("POST", "skip/{count}", _skip_some, "Acknowledge the next entries.", status=204),
    *_routes(
        "POST",
        "resetcursor/{timestamp}",
        _reset_to_time,
        "Go on with the first message at or after a time (ms since 1970).",
        status=204,
    ),
    *_routes(
        "POST",
        "resetcursor",
        _reset_to_id,
        "Go on with a message, or behind it (excluded).",
        body="ResetCursorData",
        status=204,
    ),
    *_routes(
        "POST",
        "expireMessages/{seconds}",
        _expire,
        "Acknowledge messages that are older.",
        status=204,
    ),
    *_routes(
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
