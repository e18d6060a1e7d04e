"""Routes that create, list and delete subscriptions; for a partitioned topic, on each partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, bounded, done, text_map
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.partitions import on_parts, on_topic, same
from magnetar.broker.admin.objects.subscriptions import (
    LATEST,
    on_subscription,
    reset_data,
    subscription_routes,
)
from magnetar.broker.admin.objects.topics import load, owned_topic_routes, partitions_of, stored
from magnetar.broker.topics.compaction_state import COMPACTION_SUBSCRIPTION
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


async def _list(call: Call) -> web.Response:
    found: dict[str, None] = {}

    async def here(name: TopicName) -> list[str]:
        topic = await load(call.broker, name)
        names = list(topic.subscriptions)
        if isinstance(topic, PersistentTopic) and topic.compaction_subscription() is not None:
            names.append(COMPACTION_SUBSCRIPTION)
        return names

    for names in (await on_topic(call, here, same(call))).done.values():
        found.update(dict.fromkeys(names))
    return answer(list(found))


async def _create(call: Call) -> web.Response:
    name = call.subscription
    body = await call.json_or("latest")
    start, properties = _start_of(body)
    broker, topic = call.broker, call.topic
    count = await partitions_of(call)
    if count and start is not None and -1 < start.ledger_id < LATEST:
        raise Refused(405, "Creating a subscription at a message id of a partitioned topic is not allowed")
    is_partition = 0 <= topic.partition_index < await broker.partitions(topic.base)
    if not count and not is_partition and not await broker.registry.exists(topic):
        if not (await broker.policies.of_namespace(topic.namespace)).auto_topic_creation:
            raise Refused(412, "Topic does not exist and cannot be auto-created")
        count = await broker.partitioned.ask(topic, create=True)

    async def here(each: TopicName) -> bool:
        one = stored(await broker.registry.get(each, create=True, claim=True), "Creating a subscription")
        return await one.subscriptions.create_at(name, _mark_delete_for(one.ledger, start), properties)

    if count:
        each_part = [topic.partition(index) for index in range(count)]
        ask = replace(same(call, body), answers={409: False})
        made = list((await on_parts(call, each_part, here, ask)).done.values())
    else:
        made = [await here(topic)]
    if all(each is False for each in made):
        raise Refused(409, "Subscription already exists for topic")
    return done()


def _start_of(value: Any) -> tuple[Position | None, dict[str, str]]:
    """Parses the start position of a new subscription (None: the end of the topic) and its properties."""
    position, excluded, given = reset_data(value)
    if excluded and 0 <= position.ledger_id < LATEST:
        position = Position(position.ledger_id, position.entry_id + 1)
    return (None if position.ledger_id >= LATEST else position), bounded(
        "subscription", text_map(given.get("properties") or {})
    )


def _mark_delete_for(ledger: ManagedLedger, start: Position | None) -> Position:
    """The mark-delete position that makes the entry at `start` the next one."""
    first, last = ledger.first_position(), ledger.last_position
    if start is None:
        return last
    if start.ledger_id < 0:
        return first
    return min(max(Position(start.ledger_id, start.entry_id - 1), first), last)


async def _remove_view(call: Call) -> None:
    """Deletes the compacted view of the call's topic or of its partitions, after a run in progress.

    Raises Refused (404) when there is none.
    """

    async def remove(name: TopicName) -> None:
        topic = await load(call.broker, name)
        if not isinstance(topic, PersistentTopic) or topic.compaction_subscription() is None:
            raise Refused(404, f"Subscription {COMPACTION_SUBSCRIPTION} not found for topic {name}")
        await call.broker.compactions.remove(topic)

    parts = await on_topic(call, remove, same(call))
    if not parts.done:
        raise Refused(404, f"Subscription {COMPACTION_SUBSCRIPTION} not found for topic {call.topic}")


async def _delete(call: Call) -> web.Response:
    if call.subscription == COMPACTION_SUBSCRIPTION:
        await _remove_view(call)
        return done()
    force = call.flag("force")

    async def delete(topic: Topic, subscription: Any) -> None:
        if subscription.consumers and not force:
            raise Refused(412, "Subscription has active connected consumers")
        while not await topic.subscriptions.delete_unused(subscription):
            if subscription not in topic.subscriptions.values():
                break  # deleted by a concurrent request
            if not force:
                raise Refused(412, "Subscription has active connected consumers")
            await topic.subscriptions.unsubscribe(subscription, subscription.consumers[0], force=True)

    await on_subscription(call, delete)
    return done()


async def _properties(call: Call) -> web.Response:
    async def properties(topic: Topic, subscription: Any) -> dict[str, str]:
        return dict(subscription.properties)

    found = await on_subscription(call, properties)
    return answer(next(iter(found.done.values())))


async def _put_properties(call: Call) -> web.Response:
    """Replaces all properties; for a partitioned topic, on each partition."""
    properties = bounded("subscription", await call.text_map())

    async def describe(topic: Topic, subscription: Any) -> None:
        await topic.subscriptions.describe(subscription, properties)

    await on_subscription(call, describe, properties)
    return done()


ROUTES: Final = [
    *owned_topic_routes(
        "GET",
        "subscriptions",
        _list,
        "List the subscriptions of a topic.",
        answer="List<String>",
        operation=Operation.TOPIC_CONSUME,
    ),
    *subscription_routes(
        "PUT",
        "",
        _create,
        "Create a subscription, by default at the end of the topic.",
        body="ResetCursorData",
        status=204,
        errors={
            409: "Subscription already exists for topic",
            412: "Topic does not exist and cannot be auto-created",
        },
    ),
    *subscription_routes(
        "DELETE",
        "",
        _delete,
        "Delete a subscription with its backlog.",
        query=("force:boolean=false",),
        status=204,
        errors={412: "Subscription has active connected consumers"},
    ),
    *subscription_routes(
        "GET",
        "properties",
        _properties,
        "Get the properties of a subscription.",
        answer="Map<String, String>",
    ),
    *subscription_routes(
        "PUT",
        "properties",
        _put_properties,
        "Replace the properties of a subscription.",
        body="Map<String, String>",
        status=204,
    ),
]
