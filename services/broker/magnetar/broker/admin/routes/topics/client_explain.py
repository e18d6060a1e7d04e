"""The route that explains why clients of a topic were refused or closed lately."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.authorization import may
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Ask, on_topic
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, load
from magnetar.broker.admin.stats.client_explanation import topic_clients_explanation
from magnetar.broker.client_endings import KEPT_S
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.authorizer import Target
from magnetar.common.security.authorization.operations import Operation

_OWN_API: Final = "/admin/magnetar/v1"


async def _explain(call: Call) -> web.Response:
    broker = call.broker
    roles = await may(call, Operation.TOPIC_ADMIN, Target(topic=call.topic))

    async def here(name: TopicName) -> dict[str, Any]:
        ends = broker.client_endings.of_topic(name.full, broker.ledgers.clock.wall_ms())
        topic = broker.registry.loaded.get(name.full)
        if topic is None and not ends:
            topic = await load(broker, name)
        # A topic that was deleted, or never existed, has no more than its ends.
        return topic_clients_explanation(name.full, topic, ends, roles=roles)

    parts = await on_topic(call, here, Ask("GET", "clients/explain", root=_OWN_API))
    if call.topic in parts.done:
        return answer(parts.done[call.topic])
    partitions = {each.full: part for each, part in parts.done.items()}
    own = broker.client_endings.of_topic(call.topic.full, broker.ledgers.clock.wall_ms())
    shown = topic_clients_explanation(call.topic.full, None, own, roles=roles)
    # Lookups of the topic as a whole are refused by any broker; the rest is of partitions.
    shown["reasons"] = shown["reasons"] if own else []
    for key in ("producers", "consumers"):
        shown[key] = sum(part[key] for part in partitions.values())
    return answer({**shown, "windowSeconds": KEPT_S, "partitions": partitions})


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/clients/explain",
        handler=_explain,
        summary="Explain why clients of a topic, or of each partition, were refused or closed lately.",
        answer="ClientsExplanation",
        errors=TOPIC_ERRORS,
        at_owner=True,
        operation=Operation.TOPIC_LOOKUP,
    )
]
