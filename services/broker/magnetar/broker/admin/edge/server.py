"""The HTTP port: one aiohttp application with the admin API, lookups, metrics and health.

Errors leave as Pulsar's `{"reason": ...}`, whatever raised them. The number of requests in process is
bounded: HTTP shares the event loop with the messages, and messages come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.admin.edge.call import BROKER
from magnetar.broker.admin.edge.errors import Refused, failed, status_of
from magnetar.broker.admin.edge.json_stream import TURN
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
"""Requests in process at once; more are answered 503."""

BODY_BYTES_MAX: Final = 1024 * 1024
"""Longest body of a request, decompressed; longer ones are answered 413 and not read."""

_NOT_BOUNDED: Final = health.PATHS | {"/metrics", "/metrics/"}
"""Answered however many others are in process: who looks at a busy broker must see it. Scrapes have a bound
of their own.
"""

_CONNECTIONS_REFUSED: Final = Counter(
    "magnetar_http_connections_refused",
    "HTTP connections over the bound; each ended an idle one, or was answered 503.",
    registry=REGISTRY,
)


def create_app(broker: BrokerView, routes: Iterable[Route]) -> web.Application:
    """The application over `broker`; it keeps nothing but the label texts of the metrics page."""
    bound = bounded(REQUESTS_MAX, failed, but_not=_NOT_BOUNDED)
    middlewares = [refuse_other_sites(failed), bound, _errors, _whole]
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES_MAX)
    log_requests(app, _LOGGER)
    app[BROKER] = broker
    app[TURN] = asyncio.Lock()
    if broker.cluster is not None:
        app[PEERS] = peers = Peers(broker.cluster.directory.is_current)
        app.on_cleanup.append(lambda _: peers.close())
    serve(app, routes)
    return app


class HttpEdge(AppEdge):
    """Serves a broker over HTTP."""

    def __init__(self, broker: BrokerView, routes: Iterable[Route]) -> None:
        port = Port(service="the broker", failed=failed, over_the_bound=_CONNECTIONS_REFUSED)
        super().__init__(create_app(broker, routes), port)


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
        raise  # the client left; aiohttp knows what to do
    except Exception:
        _log.exception("http request failed", method=request.method, path=request.path)
        return failed(500, "internal error; the broker's log has the details")


@web.middleware
async def _whole(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An answer that breaks off ends with its connection: a reason within it would be read as data."""
    try:
        return await handler(request)
    except ConnectionError:
        raise
    except Exception as error:
        if request.writer.output_size == 0:
            raise
        _log.exception("http answer broke off", method=request.method, path=request.path)
        raise ConnectionResetError("half an answer is sent") from error


def _without_its_body(request: web.Request, response: web.Response) -> web.Response:
    """The answer to a request whose body nobody waits for: it ends here, and so does the connection."""
    request.content.feed_eof()
    response.force_close()
    return response
