"""The route that explains why publishes to a topic were slow lately."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Ask, on_topic
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, load
from magnetar.broker.admin.stats.publish_explanation import publish_explanation
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_OWN_API: Final = "/admin/magnetar/v1"


async def _explain(call: Call) -> web.Response:
    async def here(name: TopicName) -> dict[str, Any]:
        return publish_explanation(await load(call.broker, name), call.broker.ledgers.clock)

    parts = await on_topic(call, here, Ask("GET", "publishes/explain", root=_OWN_API))
    if call.topic in parts.done:
        return answer(parts.done[call.topic])
    partitions = {each.full: part for each, part in parts.done.items()}
    shown = next(iter(partitions.values()), {"windowSeconds": 0, "slowMilliseconds": 0})
    limits = {key: shown[key] for key in ("windowSeconds", "slowMilliseconds")}
    return answer(
        {"topic": call.topic.full, **limits, "reasons": [], "publishes": [], "partitions": partitions}
    )


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/publishes/explain",
        handler=_explain,
        summary="Explain why publishes to a topic, or to each partition, were slow in the last minute.",
        answer="PublishExplanation",
        errors=TOPIC_ERRORS,
        at_owner=True,
        operation=Operation.TOPIC_LOOKUP,
    )
]
