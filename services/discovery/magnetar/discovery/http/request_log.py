"""Each HTTP request has an id: the one that it came with (`X-Request-ID`), or one that is made here.

The answer carries it, and every line that is logged for it. Who follows a redirect sends the same headers
again, so that the broker that does it logs the same id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger

_log = get_logger("magnetar.discovery.http")

_ID: Final = web.RequestKey("request_id", str)
"""Where a request keeps its id for the answer."""


def log_requests(app: web.Application) -> None:
    """Have the requests of an application known by their ids, whatever its other middlewares answer."""
    app.middlewares.insert(0, _identified)
    app.on_response_prepare.append(_tell)


@web.middleware
async def _identified(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    request_id = request_ids.accepted_or_made(request.headers.get(request_ids.HEADER))
    request[_ID] = request_id
    with request_ids.serving(request_id):
        response = await handler(request)
        _log.debug(
            "http request",
            method=request.method,
            path=request.path,
            status=response.status,
            peer=request.remote,
        )
        return response


async def _tell(request: web.Request, response: web.StreamResponse) -> None:
    request_id = request.get(_ID)
    if request_id is not None:
        response.headers[request_ids.HEADER] = request_id
