"""GET /livez and /readyz: probes for process supervisors and load balancers."""

from __future__ import annotations

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.health.readiness import not_ready
from magnetar.common.obs import health
from magnetar.common.security.authorization.operations import Operation


async def _live(call: Call) -> web.Response:
    return _text(health.live())


async def _ready(call: Call) -> web.Response:
    return _text(health.ready(not_ready(call.broker)))


def _text(answer: tuple[int, str]) -> web.Response:
    status, text = answer
    return web.Response(status=status, text=text)


ROUTES = [
    Route(
        object="brokers",
        method="GET",
        path=health.LIVEZ,
        handler=_live,
        summary="Liveness probe: check whether the process is alive.",
        answer="ok",
        anywhere=True,
        operation=Operation.OPEN,
    ),
    Route(
        object="brokers",
        method="GET",
        path=health.READYZ,
        handler=_ready,
        summary="Readiness probe: check that the broker is registered, neither starting nor stopping, and "
        "able to store messages.",
        answer="ok",
        errors={503: "no new clients are accepted, with the reason"},
        anywhere=True,
        operation=Operation.OPEN,
    ),
]
