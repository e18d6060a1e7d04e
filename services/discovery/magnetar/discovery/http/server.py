"""The HTTP server: redirects broker requests to the right broker; serves metrics and health.

    /lookup/..., /admin/..., /topics/...   307 to the owner of the topic, or to any broker; forwarded
                                           there with magnetarProxyThroughServiceUrl=true
    /metrics                               the Prometheus page
    /livez, /readyz                        liveness and readiness
    /health, /status.html                  readiness in Pulsar's format

Errors have Pulsar's form `{"reason": ...}`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from magnetar.common.cluster.broker_directory import addresses_of
from magnetar.common.errors import (
    AuthenticationFailed,
    InvalidName,
    MagnetarError,
    NotAllowed,
    ServiceNotReady,
    TopicNotFound,
)
from magnetar.common.http.app_edge import AppEdge
from magnetar.common.http.connections import Port
from magnetar.common.http.cross_site import refuse_other_sites
from magnetar.common.http.error_bodies import refused
from magnetar.common.http.paths import segments
from magnetar.common.http.request_limit import bounded
from magnetar.common.http.request_log import log_requests
from magnetar.common.http.request_peer import request_peer
from magnetar.common.http.topic_lookups import bounded_lookup, listener_name
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs import health as health_pages
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.obs.process_metrics import CONTENT_TYPE, process_page
from magnetar.discovery.discovery import Discovery
from magnetar.discovery.http.forwarding import BODY_BYTES_MAX, HttpForwarder
from magnetar.discovery.http.topic_paths import REDIRECTED, topic_of
from prometheus_client import Counter

_LOGGER: Final = "magnetar.discovery.http"

log = get_logger(_LOGGER)

REQUESTS_MAX: Final = 256
"""Maximum concurrent requests that need a broker; further ones get 503."""

BROKERS_ASKED_MAX: Final = 3
"""Maximum brokers tried for requests that any broker can answer."""

REQUESTS: Final = Counter(
    "magnetar_discovery_http_requests", "HTTP requests, by status.", ["status"], registry=REGISTRY
)

_CONNECTIONS_REFUSED: Final = Counter(
    "magnetar_discovery_http_connections_refused",
    "HTTP connections over the limit; each closed an idle one, or got 503.",
    registry=REGISTRY,
)

_OWN: Final = frozenset({*health_pages.PATHS, "/health", "/status.html", "/metrics", "/metrics/"})
"""Paths that are exempt from the limit of concurrent requests."""

_METRICS: Final = {"/metrics", "/metrics/"}
"""Open unless authenticateMetricsEndpoint is set."""

_STATUS: Final[dict[type[MagnetarError], int]] = {
    InvalidName: 412,
    TopicNotFound: 404,
    NotAllowed: 405,
    AuthenticationFailed: 401,
}


class HttpEdge(AppEdge):
    """Serves a discovery over HTTP."""

    def __init__(self, discovery: Discovery) -> None:
        port = Port(
            service="discovery",
            failed=refused,
            over_the_bound=_CONNECTIONS_REFUSED,
            auto_decompress=False,  # Bodies are forwarded unchanged.
        )
        super().__init__(create_app(discovery), port)


def create_app(discovery: Discovery) -> web.Application:
    """Create the application. Bodies of redirected requests are not read: the client sends them again."""
    carrier: HttpForwarder | None = None
    if discovery.config.proxy.through_service_url:
        carrier = HttpForwarder(discovery.directory, discovery.config.proxy, discovery.access)

    async def to_broker(request: web.Request) -> web.StreamResponse:
        if carrier is None:
            return await _redirect(discovery, request)
        return await carrier.carry(request, await _brokers_for(discovery, request), _asked(request))

    async def close_carrier(_: web.Application) -> None:
        if carrier is not None:
            await carrier.close()

    async def health(request: web.Request) -> web.StreamResponse:
        if discovery.not_ready is not None:
            return web.Response(status=503, text=f"not ready: {discovery.not_ready}")
        well = "OK" if request.path == "/status.html" else "ok"
        if discovery.metadata_pulse.silent:
            silent_s = discovery.metadata_pulse.silent_s
            well += f", but metadata has not answered for {silent_s:.0f} s: owners may be outdated"
        return web.Response(text=well)

    async def live(request: web.Request) -> web.StreamResponse:
        return _text(health_pages.live())

    async def ready(request: web.Request) -> web.StreamResponse:
        return _text(health_pages.ready(discovery.not_ready))

    async def metrics(request: web.Request) -> web.StreamResponse:
        return web.Response(body=process_page(), headers={"Content-Type": CONTENT_TYPE})

    bound = bounded(REQUESTS_MAX, refused, but_not=_OWN)
    middlewares = [_answered, refuse_other_sites(refused), _authenticated(discovery), bound]
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
    app.on_cleanup.append(close_carrier)
    log_requests(app, _LOGGER)
    app.router.add_get(health_pages.LIVEZ, live)
    app.router.add_get(health_pages.READYZ, ready)
    for path in ("/health", "/status.html"):
        app.router.add_get(path, health)
    for path in ("/metrics", "/metrics/"):
        app.router.add_get(path, metrics)
    for first in REDIRECTED:
        app.router.add_route("*", f"/{first}/{{rest:.*}}", to_broker)
    return app


def _text(answer: tuple[int, str]) -> web.Response:
    status, text = answer
    return web.Response(status=status, text=text)


async def _brokers_for(discovery: Discovery, request: web.Request) -> list[BrokerRegistration]:
    """Return the owner of the topic in the path, or several candidates. Raises MagnetarError."""
    if discovery.not_ready is not None:
        raise ServiceNotReady(f"discovery is not ready: {discovery.not_ready}")
    parts = segments(request.rel_url.raw_path)
    topic = topic_of(parts)
    if topic is not None:
        listener = listener_name(request) if parts[0] == "lookup" else ""
        return [await bounded_lookup(discovery.finder.find(topic, listener), str(topic))]
    able = discovery.brokers.some(BROKERS_ASKED_MAX)
    if not able:
        raise ServiceNotReady("no broker is available; try again")
    return list(able)


async def _redirect(discovery: Discovery, request: web.Request) -> web.Response:
    broker = (await _brokers_for(discovery, request))[0]
    listener = listener_name(request) if request.path.startswith("/lookup/") else ""
    found = addresses_of(broker, listener)
    url = found.http_url or broker.addresses.http_url
    if request.secure or not url:
        # Clients send credentials again to where they are sent: never from HTTPS to HTTP.
        url = found.http_url_tls or broker.addresses.http_url_tls
    if not url:
        raise ServiceNotReady(f"broker {broker.broker_id} has no HTTP address")
    if urlsplit(url).netloc.lower() == request.host.lower():
        # A redirect there would loop back to this service.
        log.error("a broker registered the HTTP address of this discovery", broker=broker.broker_id, url=url)
        return refused(
            508,
            f"broker {broker.broker_id} registered the HTTP address {url}, which is this discovery "
            "service; set its advertisedAddress",
        )
    return web.Response(status=307, headers={"Location": url.rstrip("/") + _asked(request)})


def _asked(request: web.Request) -> str:
    """Return path and query unchanged, also from an absolute-form target as sent to proxies."""
    return request.raw_path if request.raw_path.startswith("/") else request.rel_url.raw_path_qs


def _authenticated(discovery: Discovery) -> Middleware:
    """Return a middleware that answers 401 to requests without acceptable credentials.

    Only the redirect, which names a broker, is protected by it: brokers authenticate what they get.
    """
    own = set(_OWN) - (_METRICS if discovery.config.authentication.metrics_endpoint else set())

    @web.middleware
    async def authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
        authenticator = discovery.authenticator
        if authenticator is not None and request.path not in own:
            peer = request_peer(request)
            try:
                await authenticator.authenticate_http(request.headers, peer.certificate, peer.host)
            except AuthenticationFailed:
                response = refused(401, "Authentication required")
                if request.body_exists:
                    response.force_close()
                return response
        return await handler(request)

    return authenticated


@web.middleware
async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count each response, and convert errors to Pulsar's form."""
    response = await _answer(request, handler)
    REQUESTS.labels(str(response.status)).inc()
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except MagnetarError as error:
        status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 0)
        return refused(status or (503 if error.retriable else 500), str(error))
    except web.HTTPException as error:
        return refused(error.status, f"{error.reason}: {request.method} {request.path}")
    except ConnectionError:
        raise  # The client disconnected; aiohttp handles it.
    except Exception:
        log.exception("HTTP request failed", method=request.method, path=request.path)
        return refused(500, "internal error; see the discovery log")
