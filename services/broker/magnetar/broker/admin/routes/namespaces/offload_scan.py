"""Route that scans the objects of a namespace's offloaded ledgers.

Pulsar returns the list of its offloader; this broker compares the references of ledgers with the objects that
exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.json_stream import stream_json
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import require_namespace
from magnetar.broker.offload.object_scan import MISSING, UNKNOWN, Scan, ScannedAttempt
from magnetar.common.security.authorization.operations import Operation


async def _scan(call: Call) -> web.StreamResponse:
    await require_namespace(call.broker, call.namespace, "Namespace does not exist")
    return await stream_json(call.request, _pieces(await call.broker.sweep.scan(call.namespace)))


def _pieces(scan: Scan) -> Iterator[str]:
    yield '{"objects": ['
    for at, each in enumerate(scan.attempts):
        yield f"{', ' if at else ''}{json.dumps(_shown(each))}"
    rest = {
        "total": len(scan.attempts),
        "errors": scan.count(MISSING) + len(scan.errors),
        "unknown": scan.count(UNKNOWN),
        "truncated": scan.truncated,
        "failures": scan.errors,
    }
    yield f"], {json.dumps(rest)[1:]}"


def _shown(attempt: ScannedAttempt) -> dict[str, object]:
    return {
        "topic": attempt.topic,
        "ledgerId": attempt.ledger_id,
        "uuid": str(UUID(attempt.attempt)),
        "status": attempt.status,
        "location": attempt.location,
        "name": attempt.path,
        "objects": attempt.objects,
        "size": attempt.byte_length,
        "lastModified": attempt.newest_ms,
    }


ROUTES: Final = [
    Route(
        object="namespaces",
        method="GET",
        path=f"{NAMESPACE_PATH}/scanOffloadedLedgers",
        handler=_scan,
        summary="Scan objects of a namespace's offloaded ledgers: each is OK, RUNNING, MISSING or UNKNOWN.",
        answer="OffloadedLedgers",
        errors=NAMESPACE_ERRORS,
        operation=Operation.POLICY,
    ),
]
