"""The route that explains connections of this broker: ends and refusals of late, and what open ones do."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.stats.client_explanation import connections_explanation
from magnetar.common.security.authorization.operations import Operation


async def _explain(call: Call) -> web.Response:
    broker, clock = call.broker, call.broker.ledgers.clock
    asked = call.request.query.get("address", "").strip()
    ends = broker.client_endings.all(clock.wall_ms())
    return answer(connections_explanation(asked, broker.clients(), ends, clock))


ROUTES: Final = [
    Route(
        object="brokers",
        method="GET",
        path="/admin/magnetar/v1/connections/explain",
        handler=_explain,
        summary="Explain connections of this broker by their address (host:port), host or id: those that "
        "were refused or ended lately, and what open ones do. Without an address, all ends.",
        query=("address:String",),
        answer="ConnectionsExplanation",
        anywhere=True,
        operation=Operation.SUPER_USER,
    )
]
