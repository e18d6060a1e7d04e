"""A console over an admin API that answers what a test says, both on loopback, and a browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import aiohttp
from aiohttp import web
from magnetar.console.browser_safety import FORM_FIELD
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.console import Console
from magnetar.console.oidc_login import OidcLogin
from magnetar.console.server import create_app

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{7*7}}&amp;\u202e"""
"""A name or payload that would do something wherever it is not escaped."""


@dataclass(slots=True)
class FakeAdmin:
    """An admin API: answers by method and path, percent-encoded, without the query."""

    answers: dict[tuple[str, str], Any] = field(default_factory=dict)
    """A value, or (status, value)."""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    """Calls that change something: method, path with query, body."""
    tokens: set[str] | None = None
    """Tokens that are accepted; None: no authentication."""
    seen: list[str | None] = field(default_factory=list)
    """Authorization of each call."""
    url: str = ""
    """The URL that it listens on."""

    async def handle(self, request: web.Request) -> web.Response:
        authorization = request.headers.get("Authorization")
        self.seen.append(authorization)
        if self.tokens is not None and (authorization or "").removeprefix("Bearer ") not in self.tokens:
            return web.json_response({"reason": "Authentication required"}, status=401)
        path, _, _ = request.raw_path.partition("?")
        if request.method != "GET":
            text = await request.text()
            self.asked.append((request.method, request.raw_path, json.loads(text) if text else None))
        found = self.answers.get((request.method, path), (404, {"reason": f"no {request.method} {path}"}))
        status, value = found if isinstance(found, tuple) else (200, found)
        if status in (307, 308):
            return web.Response(status=status, headers={"Location": value})
        if isinstance(value, str) and path in ("/metrics", "/readyz"):
            return web.Response(status=status, text=value)
        return web.Response(status=status) if value is None else web.json_response(value, status=status)


@dataclass(slots=True)
class Page:
    """An answer of the console."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def form_token(self) -> str:
        found = re.search(rf'name="{FORM_FIELD}" value="([0-9a-f]+)"', self.text)
        assert found is not None, self.text
        return found[1]


class Browser:
    """Keeps cookies, as a browser does, and follows no redirect."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Page:
        async with self.session.get(f"{self.url}{path}", headers=headers, allow_redirects=False) as response:
            return Page(response.status, await response.text(), dict(response.headers))

    async def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Page:
        async with self.session.post(
            f"{self.url}{path}", data=fields, headers=headers, allow_redirects=False
        ) as response:
            return Page(response.status, await response.text(), dict(response.headers))


@asynccontextmanager
async def _listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    try:
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def on_stage(
    body: Callable[[FakeAdmin, Browser], Awaitable[None]],
    admin: FakeAdmin | None = None,
    *,
    alerts: bool = False,
    login: Callable[[str], OidcLogin] | None = None,
) -> None:
    """Run a test with an admin API, a console and a browser.

    With `alerts` the API is also the Prometheus. `login` makes the console's logins for the API's URL.
    """
    fake = admin or FakeAdmin()

    async def run() -> None:
        api = web.Application()
        api.router.add_route("*", "/{path:.*}", fake.handle)
        async with asyncio.timeout(30), _listening(api) as admin_url:
            fake.url = admin_url
            access = ClusterAccess(
                admin_url=admin_url,
                service_url="pulsar://127.0.0.1:1",
                prometheus_url=admin_url if alerts else "",
            )
            oidc = None if login is None else login(admin_url)
            async with _listening(create_app(Console(access, oidc=oidc))) as url:
                jar = aiohttp.CookieJar(unsafe=True)  # which means: of addresses without a name too
                async with aiohttp.ClientSession(cookie_jar=jar) as session:
                    await body(fake, Browser(session, url))

    asyncio.run(run())


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def active_parts(html: str) -> list[str]:
    """Return what a page would execute or load besides the console's own files."""
    tags = _Tags()
    tags.feed(html)
    found = []
    for tag, attributes in tags.found:
        if tag == "script" and not (attributes.get("src") or "").startswith("/static/"):
            found.append(f"<script {attributes}>")
        if tag in ("img", "iframe", "object", "embed", "style", "base", "svg"):
            found.append(f"<{tag} {attributes}>")
        for name, value in attributes.items():
            if name.startswith("on") or name in ("style", "srcdoc", "hx-on", "hx-vals", "hx-headers"):
                found.append(f"{tag} {name}={value}")
            if name in ("href", "src", "action", "hx-get", "hx-post") and not (value or "").startswith(
                ("/", "#")
            ):
                found.append(f"{tag} {name}={value}")
    return found
