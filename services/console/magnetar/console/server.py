"""The console on a port of its own: its pages at the root, and metrics and health beside them."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web
from magnetar.common.http.app_edge import AppEdge
from magnetar.common.http.connections import Port
from magnetar.common.http.cross_site import refuse_other_sites
from magnetar.common.http.error_bodies import refused
from magnetar.common.http.request_log import log_requests
from magnetar.common.obs import health
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.obs.process_metrics import CONTENT_TYPE, process_page
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.console import Console
from magnetar.console.oidc_config import OidcConfig
from magnetar.console.oidc_login import OidcLogin
from prometheus_client import Counter

FORM_BYTES_MAX: Final = 1024 * 1024
"""Longest form, in bytes."""

_CONNECTIONS_REFUSED: Final = Counter(
    "magnetar_console_http_connections_refused",
    "HTTP connections over the limit; each closed an idle one, or got 503.",
    registry=REGISTRY,
)


class HttpEdge(AppEdge):
    """Serves a console over HTTP."""

    def __init__(self, access: ClusterAccess, oidc: OidcConfig | None = None) -> None:
        """Raises ValueError when a file of `oidc` cannot be read."""
        port = Port(service="the console", failed=refused, over_the_bound=_CONNECTIONS_REFUSED)
        login = OidcLogin(oidc, time.monotonic) if oidc is not None and oidc.enabled else None
        super().__init__(create_app(Console(access, oidc=login)), port)


def create_app(console: Console) -> web.Application:
    """Create the application; it closes the console."""

    async def live(request: web.Request) -> web.Response:
        return _text(health.live())

    async def ready(request: web.Request) -> web.Response:
        return _text(health.ready(None))

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=process_page(), headers={"Content-Type": CONTENT_TYPE})

    async def close(app: web.Application) -> None:
        await console.close()

    app = web.Application(middlewares=[refuse_other_sites(refused)], client_max_size=FORM_BYTES_MAX)
    log_requests(app, "magnetar.console.http")
    app.router.add_get(health.LIVEZ, live)
    app.router.add_get(health.READYZ, ready)
    app.router.add_get("/metrics", metrics)
    app.router.add_route("*", "/{path:.*}", console.handle)
    app.on_shutdown.append(close)  # before requests in process are waited for: live views would not end
    return app


def _text(answer: tuple[int, str]) -> web.Response:
    status, text = answer
    return web.Response(status=status, text=text)
