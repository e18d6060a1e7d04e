"""Routes for the compaction of topics: starts it, and returns its status."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.partitions import on_topic, same
from magnetar.broker.admin.objects.topics import (
    TOPIC_ERRORS,
    TOPIC_PATH,
    load,
    owned_topic_routes,
    persistent,
    stored,
)
from magnetar.broker.compaction.explanation import explain
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation


async def _status(call: Call) -> web.Response:
    state = (await persistent(call, "Compaction status")).compaction
    return answer({"status": state.status.value, "lastError": state.last_error})


async def _compact(call: Call) -> web.Response:
    """Starts a compaction, for a partitioned topic on each partition."""

    async def start(name: TopicName) -> None:
        if not call.broker.compactions.start(stored(await load(call.broker, name), "Compaction")):
            raise Refused(409, "Compaction already in progress")

    await on_topic(call, start, same(call))
    return done()


async def _report(call: Call) -> web.Response:
    topic = await persistent(call, "Compaction status")
    state, compaction = topic.compaction, topic.ledger.compaction
    horizon, figures = compaction.horizon, compaction.figures
    report: dict[str, Any] = {
        "status": state.status.value,
        "lastError": state.last_error,
        "explanation": explain(topic),
        "startedAt": state.started_ms,
        "succeededAt": state.succeeded_ms,
        "failedAt": state.failed_ms,
        "durationMs": state.duration_ms,
        "removedMessages": state.removed,
        "readBytes": state.bytes_read,
        "writtenBytes": state.bytes_written,
        "horizon": None if horizon is None else str(horizon),
        "viewEntries": figures.entries,
        "viewBytes": figures.stored_bytes,
        "uncompactedBytes": topic.uncompacted_bytes,
        "threshold": topic.policies.compaction_threshold_bytes,
        "holds": compaction.held,
    }
    return answer(report)


ROUTES: Final = [
    *owned_topic_routes(
        "GET",
        "compaction",
        _status,
        "Get the status of the last compaction since the topic was loaded.",
        answer="LongRunningProcessStatus",
        errors={405: "the topic is partitioned or not persistent"},
        operation=Operation.TOPIC_ADMIN,
    ),
    *owned_topic_routes(
        "PUT",
        "compaction",
        _compact,
        "Start a compaction of a topic, or of all partitions.",
        status=204,
        errors={405: "the topic is not persistent", 409: "Compaction already in progress"},
        operation=Operation.TOPIC_ADMIN,
    ),
    Route(
        object="persistent",
        method="GET",
        path=f"/admin/magnetar/v1/{{domain}}{TOPIC_PATH}/compaction",
        handler=_report,
        summary="Get the compacted view of a topic, its last compaction, when the next one starts.",
        answer="CompactionReport",
        errors={**TOPIC_ERRORS, 405: "the topic is partitioned or not persistent"},
        at_owner=True,
        operation=Operation.TOPIC_ADMIN,
    ),
]
