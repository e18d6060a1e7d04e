"""GET /livez and /readyz, for what restarts brokers and for what sends clients to them."""

from __future__ import annotations

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.health.readiness import not_ready
from magnetar.common.obs import health


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
        summary="Whether the process lives, for what restarts it.",
        action="health",
        answer="ok",
        anywhere=True,
    ),
    Route(
        object="brokers",
        method="GET",
        path=health.READYZ,
        handler=_ready,
        summary="Whether clients may be sent here: this broker is registered, neither starts nor stops, "
        "and can store messages.",
        action="health",
        answer="ok",
        errors={503: "nobody new is to be sent here, and why"},
        anywhere=True,
    ),
]
