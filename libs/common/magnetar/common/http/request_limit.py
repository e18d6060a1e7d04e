"""A limit on concurrent HTTP requests, which share the event loop with messages."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware


def bounded(
    requests_max: int, failed: Callable[[int, str], web.Response], *, but_not: Collection[str]
) -> Middleware:
    """Returns middleware that answers 503 above `requests_max` concurrent requests; paths in `but_not` are
    exempt.
    """
    in_process = 0

    @web.middleware
    async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_process
        if request.path in but_not:
            return await handler(request)
        if in_process >= requests_max:
            return failed(503, f"{requests_max} requests are in process already; try again")
        in_process += 1
        try:
            return await handler(request)
        finally:
            in_process -= 1

    return bound
