"""Request ids and access log of HTTP requests.

The id comes from the request (`X-Request-ID`) or is generated. The response carries it, and so does every log
line of the request, in this process and in every other process that works for it. A client that follows a
redirect sends the same headers, so the next process logs the same id.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from magnetar.common.http.cross_site import READS
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger

_ID: Final = web.RequestKey("request_id", str)
"""Key under which a request stores its id for the response."""

_MESSAGES: Final = "/topics/"
"""Path prefix of endpoints that publish messages."""


def log_requests(app: web.Application, logger: str) -> None:
    """Installs request ids and logging, in front of the application's other middlewares.

    `logger` is the logger's name. Requests that change something are logged at level info, also by proxies,
    since only the first process sees the client's address. Other requests are logged at debug.
    """
    app.middlewares.insert(0, _identified(logger))
    app.on_response_prepare.append(_tell)


def _changes(request: web.Request) -> bool:
    """Returns whether a request changes something. Reads and published messages do not count: messages are
    not logged.
    """
    return request.method not in READS and not request.path.startswith(_MESSAGES)


def _identified(logger: str) -> Middleware:
    log = get_logger(logger)

    @web.middleware
    async def identified(request: web.Request, handler: Handler) -> web.StreamResponse:
        request_id = request_ids.accepted_or_made(request.headers.get(request_ids.HEADER))
        request[_ID] = request_id
        with request_ids.serving(request_id):
            now = asyncio.get_running_loop().time
            began = now()
            status = 0
            try:
                response = await handler(request)
                status = response.status
                return response
            except web.HTTPException as answer:
                status = answer.status
                raise
            finally:
                (log.info if _changes(request) else log.debug)(
                    "http request",
                    method=request.method,
                    path=request.path,
                    status=status,
                    ms=round((now() - began) * 1000, 1),
                    peer=request.remote,
                )

    return identified


async def _tell(request: web.Request, response: web.StreamResponse) -> None:
    request_id = request.get(_ID)
    if request_id is not None:
        response.headers[request_ids.HEADER] = request_id
