"""Operations on a subscription of a topic or of all its partitions, and positions in bodies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import NOTHING
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Parts, not_created, on_topic, same
from magnetar.broker.admin.objects.topics import (
    NOT_CREATED,
    load,
    owned_topic_routes,
    stored,
    subscription_of,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

LATEST: Final = 2**63 - 1
"""The ledger id and entry id that denote the end of a topic."""


Act: TypeAlias = Callable[[Topic, Any], Awaitable[Any]]


async def on_subscription(call: Call, act: Act, body: Any = NOTHING) -> Parts:
    """Calls `act` with the call's subscription of its topic, or of each partition that has it.

    `body` is the body of the call, for owners of other partitions. Raises Refused (404) when no partition has
    the subscription, and as `on_parts`.
    """
    name = call.subscription

    async def here(topic_name: TopicName) -> Any:
        topic = await load(call.broker, topic_name)
        return await act(topic, subscription_of(topic, name))

    parts = await on_topic(call, here, same(call, body))
    if parts.done:
        return parts
    if all(map(not_created, parts.missing.values())):
        raise TopicNotFound(NOT_CREATED)
    raise Refused(404, f"Subscription {name} not found for topic {call.topic}")


StoredAct: TypeAlias = Callable[[PersistentTopic, Subscription], Awaitable[Any]]


async def on_stored_subscription(call: Call, what: str, act: StoredAct, body: Any = NOTHING) -> Parts:
    """Calls `act` as `on_subscription` does, on persistent topics. Raises Refused (405) for others."""

    async def persistent(topic: Topic, subscription: Any) -> Any:
        return await act(stored(topic, what), subscription)

    return await on_subscription(call, persistent, body)


def reset_data(value: Any) -> tuple[Position, bool, dict[str, Any]]:
    """Parses a message id, its `excluded` flag, and the whole body. Raises Refused."""
    if value in ("earliest", "latest"):
        return (Position(-1, -1) if value == "earliest" else Position(LATEST, LATEST)), False, {}
    if not isinstance(value, dict):
        raise Refused(400, "the position must be latest, earliest or an object with ledgerId and entryId")
    ids = []
    for key in ("ledgerId", "entryId"):
        number = value.get(key, -1)
        if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LATEST:
            raise Refused(400, f"{key} must be a whole number of at least -1")
        ids.append(number)
    excluded = value.get("excluded", value.get("isExcluded", False))
    return Position(ids[0], ids[1]), excluded is True, value


_SUBSCRIPTION: Final = "subscription/{subscription}"
_NO_SUCH: Final = {
    404: "Namespace not found; Topic not found; Subscription not found",
    405: "the topic is not persistent; a partitioned topic does not accept a message id or count",
}


def subscription_routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    """Returns the routes of a verb on a subscription, one for each domain."""
    errors = {**_NO_SUCH, **more.pop("errors", {})}
    path = f"{_SUBSCRIPTION}/{name}" if name else _SUBSCRIPTION
    return owned_topic_routes(
        method, path, handler, summary, errors=errors, **more, operation=Operation.TOPIC_CONSUME
    )
