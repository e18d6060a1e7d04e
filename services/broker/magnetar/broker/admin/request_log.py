"""Each HTTP request has an id, and each that changes something a line in the log.

The id is the one that the request came with (`X-Request-ID`), or one that is made here; the answer carries
it, whatever it says, and so does every line that is logged for it, here and wherever else it made work. Reads
are logged only at level debug: there may be many, and they change nothing. So are messages that are published
over HTTP: nothing is logged for a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger

_log = get_logger("magnetar.broker.http")

_ID: Final = web.RequestKey("request_id", str)
"""Where a request keeps its id for the answer."""

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_MESSAGES: Final = "/topics/"
"""Below it messages are published."""


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
            quiet = request.method in _READS or request.path.startswith(_MESSAGES)
            (_log.debug if quiet else _log.info)(
                "http request",
                method=request.method,
                path=request.path,
                status=status,
                ms=round((now() - began) * 1000, 1),
                peer=request.remote,
            )


async def _tell(request: web.Request, response: web.StreamResponse) -> None:
    request_id = request.get(_ID)
    if request_id is not None:
        response.headers[request_ids.HEADER] = request_id
