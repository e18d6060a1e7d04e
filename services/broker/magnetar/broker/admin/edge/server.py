"""The HTTP server: one aiohttp application with the admin API, lookups, metrics and health.

All errors are returned as Pulsar's `{"reason": ...}`. The number of concurrent requests is bounded, because
HTTP shares the event loop with messages, and messages take precedence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from magnetar.broker.admin.edge.authentication import authenticated
from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.call import BROKER
from magnetar.broker.admin.edge.errors import Refused, failed, status_of
from magnetar.broker.admin.edge.json_stream import TURN
from magnetar.broker.admin.edge.pages_beside import PagesBeside, serve_beside
from magnetar.broker.admin.edge.peers import PEERS, Peers
from magnetar.broker.admin.edge.routing import Route, serve
from magnetar.common.errors import MagnetarError
from magnetar.common.http.app_edge import AppEdge
from magnetar.common.http.connections import Port
from magnetar.common.http.cross_site import refuse_other_sites
from magnetar.common.http.request_limit import bounded
from magnetar.common.http.request_log import log_requests
from magnetar.common.obs import health
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

_LOGGER: Final = "magnetar.broker.http"

_log = get_logger(_LOGGER)

REQUESTS_MAX: Final = 256
"""Maximum concurrent requests; further ones are answered with 503."""

BODY_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of a request body after decompression; larger ones are answered with 413."""

_NOT_BOUNDED: Final = health.PATHS | {"/metrics", "/metrics/"}
"""Paths that are exempt from REQUESTS_MAX, so that a busy broker can be observed. Scrapes have a limit of
their own.
"""

_CONNECTIONS_REFUSED: Final = Counter(
    "magnetar_http_connections_refused",
    "HTTP connections over the limit; each one closed an idle connection or was answered with 503.",
    registry=REGISTRY,
)


def create_app(
    broker: BrokerView, routes: Iterable[Route], beside: PagesBeside | None = None
) -> web.Application:
    """Returns the application that serves these routes of `broker`, and pages of another service beside."""
    bound = bounded(REQUESTS_MAX, failed, but_not=_NOT_BOUNDED)
    middlewares = [refuse_other_sites(failed), _errors, authenticated, bound, _whole]
    if beside is not None:
        middlewares.insert(1, serve_beside(beside))
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
    log_requests(app, _LOGGER)
    app[BROKER] = broker
    app[TURN] = asyncio.Lock()
    if broker.cluster is not None:
        client = broker.config.broker_client
        app[PEERS] = peers = Peers(broker.cluster.directory.is_current, client=client)
        app.on_cleanup.append(lambda _: peers.close())
    if beside is not None:
        close = beside.close
        app.on_shutdown.append(lambda _: close())
    serve(app, routes)
    return app


class HttpEdge(AppEdge):
    """Serves a broker over HTTP."""

    def __init__(
        self, broker: BrokerView, routes: Iterable[Route], beside: PagesBeside | None = None
    ) -> None:
        port = Port(service="the broker", failed=failed, over_the_bound=_CONNECTIONS_REFUSED)
        super().__init__(create_app(broker, routes, beside), port)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        response = failed(error.status, error.reason)
        return _without_its_body(request, response) if error.status == 408 else response
    except MagnetarError as error:
        return failed(status_of(error), str(error))
    except web.RequestPayloadError as error:
        return _without_its_body(request, failed(400, f"the body cannot be read: {error}"))
    except web.HTTPRequestEntityTooLarge:
        return failed(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = failed(error.status, f"{error.reason}: {request.method} {request.path}")
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except ConnectionError:
        raise  # the client disconnected; aiohttp handles it
    except Exception:
        _log.exception("http request failed", method=request.method, path=request.path)
        return failed(500, "internal error; see the broker's log")


@web.middleware
async def _whole(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Closes the connection when a partly sent response fails: an error in it would be read as data."""
    try:
        return await handler(request)
    except ConnectionError:
        raise
    except Exception as error:
        if request.writer.output_size == 0:
            raise
        _log.exception("http response aborted", method=request.method, path=request.path)
        raise ConnectionResetError("the response was aborted after it was partly sent") from error


def _without_its_body(request: web.Request, response: web.Response) -> web.Response:
    """Returns the response to a request whose body is not read any further; the connection is closed."""
    request.content.feed_eof()
    response.force_close()
    return response
