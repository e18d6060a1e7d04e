"""Pages of another service at the broker's HTTP port, below a path of their own.

They authenticate their callers themselves, and are not counted among the broker's requests: of their calls of
the admin API each one is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware


@dataclass(frozen=True, slots=True)
class PagesBeside:
    """Pages below a path, and what ends them."""

    prefix: str
    """The path, without a slash at its end."""
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]]
    close: Callable[[], Awaitable[None]]
    """Called before requests in process are waited for."""


def serve_beside(pages: PagesBeside) -> Middleware:
    """Returns middleware that answers requests below the path."""
    below = f"{pages.prefix}/"

    @web.middleware
    async def beside(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == pages.prefix or request.path.startswith(below):
            return await pages.handle(request)
        return await handler(request)

    return beside
