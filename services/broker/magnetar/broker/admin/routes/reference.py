"""Routes of the API reference: the OpenAPI document, and a page that displays it in a browser."""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.routing import TABLE, Route
from magnetar.broker.admin.openapi.document import document
from magnetar.common.security.authorization.operations import Operation

_PAGE_HEADERS: Final = {
    # The page loads nothing from other servers, and requests only the document.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class _Document:
    """Builds the document at the first request and caches it: the route table does not change."""

    def __init__(self) -> None:
        self._body = b""

    async def get(self, call: Call) -> web.Response:
        if not self._body:
            # Half a megabyte of JSON: encoding it at once would delay messages.
            table = call.request.app[TABLE]
            self._body = await asyncio.to_thread(lambda: json.dumps(document(table)).encode())
        return web.Response(body=self._body, content_type="application/json")


async def _page(call: Call) -> web.Response:
    text = files("magnetar.broker.admin.openapi").joinpath("reference_page.html").read_text("utf-8")
    return web.Response(text=text, content_type="text/html", headers=_PAGE_HEADERS)


async def _start(call: Call) -> web.Response:
    return web.Response(status=302, headers={"Location": "/docs"})


def routes() -> list[Route]:
    """Returns the routes of the document and the page."""
    return [
        Route(
            object="reference",
            method="GET",
            path="/openapi.json",
            handler=_Document().get,
            summary="This API as an OpenAPI 3.1 document.",
            answer="Map",
            operation=Operation.OPEN,
        ),
        Route(
            object="reference",
            method="GET",
            path="/docs",
            handler=_page,
            summary="This API as a page for a browser.",
            answer="text/html",
            operation=Operation.OPEN,
        ),
        Route(
            object="reference",
            method="GET",
            path="/",
            handler=_start,
            summary="Redirects a browser to /docs.",
            status=302,
            operation=Operation.OPEN,
        ),
    ]
