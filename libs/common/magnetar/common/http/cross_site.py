"""Pages of other sites change nothing here.

Nobody is asked who he is, so a browser on a machine that reaches the port could be told by any page that its
user opens to delete a backlog or to stop a broker: it asks for no leave before a POST without a body. It says
from where the page is, though (`Origin`), which programs do not. What was sent on by a proxy is for the proxy
to judge, since it may call this service by another name than the browser does: a page cannot pretend to be
one, as a browser asks for leave before it sends a header that is not of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change nothing, and a browser shows their answers to no page of another site."""

_OF_PROXIES: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host")


def refuse_other_sites(failed: Callable[[int, str], web.Response]) -> Middleware:
    """Requests that a browser sends for a page of another site are answered 403, but for those that read."""

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in READS and _is_of_another_site(request):
            return failed(
                403,
                "cross-site request refused: a page of another site may not change anything here; a proxy in "
                "front of this service must send X-Forwarded-Host",
            )
        return await handler(request)

    return refuse


def _is_of_another_site(request: web.Request) -> bool:
    origin = request.headers.get("Origin")
    if origin is None or any(name in request.headers for name in _OF_PROXIES):
        return False
    try:
        return urlsplit(origin).netloc.lower() != request.host.lower()
    except ValueError:
        return True
