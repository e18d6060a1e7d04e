"""The route that explains why a topic is at its broker, and what would move it; the leader answers it."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.brokers import broker_id, require_leader
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, require_topic
from magnetar.broker.admin.stats.bundle_explanation import brokers_json, reasons_json
from magnetar.broker.load.explanation import PlacementCode, placement_reason
from magnetar.common.cluster.bundles import bundle_at, bundles_of
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.security.authorization.operations import Operation


async def _explain(call: Call) -> web.Response:
    topic, broker = call.topic, call.broker
    namespace = await broker.namespaces.get(topic.namespace)
    if namespace is None:
        raise NamespaceNotFound("Namespace not found")
    partitions = await require_topic(broker, topic, may_be_created=False)
    bundles = bundles_of(namespace)
    bundle = bundles[bundle_at(bundles, topic.hash)]
    shown: dict[str, Any] = {
        "topic": topic.full,
        "partitions": partitions,
        "namespaceBundles": len(bundles),
        "bundle": str(bundle),
    }
    if broker.load_leader is None:
        text = "a standalone has one broker, which serves every topic"
        sole = placement_reason(PlacementCode.SOLE_BROKER, text, broker=broker_id(call))
        return answer({**shown, "broker": broker_id(call), **reasons_json([sole], []), "brokers": []})
    require_leader(call, f"the place of topic {topic}")
    here, moves, placement = broker.load_leader.explain((topic.namespace, bundle))
    owner = None if placement.owner is None else placement.owner.broker_id
    return answer({**shown, "broker": owner, **reasons_json(here, moves), "brokers": brokers_json(placement)})


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"/admin/magnetar/v1/{{domain}}{TOPIC_PATH}/explain",
        handler=_explain,
        summary="Explain why a topic is at its broker, and what would move it.",
        answer="TopicExplanation",
        errors=TOPIC_ERRORS,
        operation=Operation.TOPIC_LOOKUP,
    )
]
