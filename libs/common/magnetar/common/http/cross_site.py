"""Protection against cross-site requests.

The HTTP port has no authentication, so any web page could make a browser that reaches the port delete a
backlog or stop a broker: browsers send a POST without a body without asking first. Browsers name the page's
site in `Origin`, other programs do not send it. Requests forwarded by a proxy are left to the proxy, since it
may use another host name than the browser. A page cannot forge the proxy's header: a browser asks permission
before it sends a non-standard header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; browsers do not show their responses to pages of other sites."""

_OF_PROXIES: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host")


def refuse_other_sites(failed: Callable[[int, str], web.Response]) -> Middleware:
    """Returns middleware that answers 403 to browser requests from pages of other sites, except reads."""

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
