"""What the calls about subscriptions have in common: which topics have it, and positions in bodies."""

from __future__ import annotations

from typing import Any, Final

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.http_errors import Refused
from magnetar.broker.admin.routing import Route
from magnetar.broker.admin.topic_calls import all_parts, stored, stored_subscription
from magnetar.broker.admin.topics import topic_routes
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.topic import Topic
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.position import Position

LATEST: Final = 2**63 - 1
"""The ledger and entry ids that mean the end of a topic."""


async def parts_with(call: Call, name: str) -> list[tuple[Topic, Any]]:
    """The topic, or its partitions, that have the subscription. Raises Refused (404) when none has."""
    parts = await all_parts(call)
    found = [(topic, topic.subscriptions[name]) for topic in parts if name in topic.subscriptions]
    if not found:
        if not parts:
            raise TopicNotFound("Topic partitions were not yet created")
        raise Refused(404, f"Subscription {name} not found for topic {call.topic}")
    return found


async def stored_parts(call: Call, what: str) -> list[tuple[PersistentTopic, Subscription]]:
    """The same of persistent topics. Raises Refused (405 for others)."""
    return [
        (topic, stored_subscription(topic, call.subscription))
        for each, _ in await parts_with(call, call.subscription)
        for topic in [stored(each, what)]
    ]


def reset_data(value: Any) -> tuple[Position, bool, dict[str, Any]]:
    """A message id with `excluded`, as clients send it, and all of the body. Raises Refused."""
    if not isinstance(value, dict):
        raise Refused(400, "the position must be an object with ledgerId and entryId, latest or earliest")
    ids = []
    for key in ("ledgerId", "entryId"):
        number = value.get(key, -1)
        if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LATEST:
            raise Refused(400, f"{key} must be a whole number from -1 on")
        ids.append(number)
    excluded = value.get("excluded", value.get("isExcluded", False))
    return Position(ids[0], ids[1]), excluded is True, value


_SUBSCRIPTION: Final = "subscription/{subscription}"
_NO_SUCH: Final = {
    404: "Namespace not found; Topic not found; Subscription not found",
    405: "not on a non-persistent topic; not on a partitioned one where a message id or count is meant",
}


def subscription_routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    """The route of a verb on a subscription in both domains."""
    errors = {**_NO_SUCH, **more.pop("errors", {})}
    path = f"{_SUBSCRIPTION}/{name}" if name else _SUBSCRIPTION
    return topic_routes(method, path, handler, summary, errors=errors, **more)
