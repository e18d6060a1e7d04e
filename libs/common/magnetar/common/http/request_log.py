"""Each HTTP request has an id, and a line in the log.

The id is the one that the request came with (`X-Request-ID`), or one that is made here; the answer carries
it, whatever it says, and so does every line that is logged for it, here and wherever else it made work. Who
follows a redirect sends the same headers again, so that whoever does it logs the same id.
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
"""Where a request keeps its id for the answer."""

_MESSAGES: Final = "/topics/"
"""Below it messages are published."""


def log_requests(app: web.Application, logger: str) -> None:
    """Have the requests of an application known by their ids, whatever its other middlewares answer.

    `logger` is its name. Requests that are to change something are logged at level info, also by who only
    passes them on: nobody else knows the client's address. The others, of which there may be many, at debug.
    """
    app.middlewares.insert(0, _identified(logger))
    app.on_response_prepare.append(_tell)


def _changes(request: web.Request) -> bool:
    """Not reads, which change nothing; nor messages that are published: nothing is logged for a message."""
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
