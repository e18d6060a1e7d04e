"""The route that explains why a subscription does not dispatch."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Ask, on_topic
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, load, subscription_of
from magnetar.broker.admin.stats.explanations import subscription_explanation
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_OWN_API: Final = "/admin/magnetar/v1"


async def _explain(call: Call) -> web.Response:
    name = call.subscription

    async def here(topic_name: TopicName) -> dict[str, Any]:
        topic = await load(call.broker, topic_name)
        return subscription_explanation(topic, subscription_of(topic, name))

    verb = f"subscription/{quote(quote(name, safe=''), safe='')}/explain"
    parts = await on_topic(call, here, Ask("GET", verb, root=_OWN_API))
    if call.topic in parts.done:
        return answer(parts.done[call.topic])
    if not parts.done:
        raise Refused(404, f"Subscription {name} not found for topic {call.topic}")
    return answer(_together(call.topic, name, {each.full: part for each, part in parts.done.items()}))


def _together(topic: TopicName, name: str, partitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the explanation of a partitioned topic: those of its partitions, and their sums."""
    found = list(partitions.values())
    return {
        "topic": topic.full,
        "subscription": name,
        "type": found[0]["type"],
        "moves": any(each["moves"] for each in found),
        "reasons": [],
        **{key: sum(each[key] for each in found) for key in ("backlog", "unackedMessages", "consumerCount")},
        "consumers": [],
        "partitions": partitions,
    }


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/subscription/{{subscription}}/explain",
        handler=_explain,
        summary="Explain why a subscription, or that of each partition, delivers nothing now.",
        answer="SubscriptionExplanation",
        errors={**TOPIC_ERRORS, 404: "Namespace not found; Topic not found; Subscription not found"},
        at_owner=True,
        operation=Operation.TOPIC_CONSUME,
    )
]
