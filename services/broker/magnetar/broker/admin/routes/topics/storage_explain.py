"""The route that explains what keeps the ledgers of a topic."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import Ask, on_topic
from magnetar.broker.admin.objects.topics import TOPIC_ERRORS, TOPIC_PATH, load, stored
from magnetar.broker.admin.stats.storage_explanation import storage_explanation
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

_OWN_API: Final = "/admin/magnetar/v1"


async def _explain(call: Call) -> web.Response:
    async def here(name: TopicName) -> dict[str, Any]:
        return storage_explanation(stored(await load(call.broker, name), "Explaining the storage"))

    parts = await on_topic(call, here, Ask("GET", "storage/explain", root=_OWN_API))
    if call.topic in parts.done:
        return answer(parts.done[call.topic])
    return answer(_together(call.topic, {each.full: part for each, part in parts.done.items()}))


def _together(topic: TopicName, partitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the explanation of a partitioned topic: those of its partitions, and their sums."""
    found = list(partitions.values())
    by_code: Counter[str] = Counter()
    for each in found:
        by_code.update(each["bytesByCode"])
    sums = ("bytes", "bytesOnBookies", "compactedViewBytes")
    return {
        "topic": topic.full,
        **{key: sum(each[key] for each in found) for key in sums},
        "bytesByCode": dict(by_code),
        "ledgers": [],
        "partitions": partitions,
    }


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"{_OWN_API}/{{domain}}{TOPIC_PATH}/storage/explain",
        handler=_explain,
        summary="Explain what keeps each ledger of a topic, or of each partition.",
        answer="StorageExplanation",
        errors=TOPIC_ERRORS,
        at_owner=True,
        operation=Operation.TOPIC_LOOKUP,
    )
]
