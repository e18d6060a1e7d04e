"""The HTTP port: one aiohttp application with the admin API, lookups, metrics and health.

Errors leave as Pulsar's `{"reason": ...}`, whatever raised them. The number of requests in process is
bounded: HTTP shares the event loop with the messages, and messages come first.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from magnetar.broker.admin.call import BROKER
from magnetar.broker.admin.http_errors import Refused, reason_response, status_of
from magnetar.broker.admin.routing import serve
from magnetar.broker.admin.table import routes
from magnetar.broker.admin.view import BrokerView
from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

_log = get_logger("magnetar.broker.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUESTS_MAX: Final = 256
"""Requests in process at once; more are answered 503."""

_SHUTDOWN_TIMEOUT_S: Final = 2.0

_FAILED: Final = Counter(
    "magnetar_http_requests_failed",
    "HTTP requests answered with an error, by status.",
    ["status"],
    registry=REGISTRY,
)


def create_app(broker: BrokerView) -> web.Application:
    """The application over `broker`; it keeps nothing but the label texts of the metrics page."""
    app = web.Application(middlewares=[_bounded(REQUESTS_MAX), _errors])
    app[BROKER] = broker
    serve(app, routes(broker))
    return app


class HttpEdge:
    """Serves a broker over HTTP."""

    def __init__(self, broker: BrokerView) -> None:
        self._runner = web.AppRunner(
            create_app(broker), access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_TIMEOUT_S
        )

    async def start(self, listening: socket.socket) -> None:
        """Serve connections of a socket that listens already; it stays the caller's to close."""
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()

    async def close(self) -> None:
        """Stop accepting, give requests in process a moment, end; idempotent."""
        await self._runner.cleanup()


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        return _failed(error.status, error.reason)
    except MagnetarError as error:
        return _failed(status_of(error), str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = _failed(error.status, f"{error.reason}: {request.method} {request.path}")
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except ConnectionError:
        raise  # the client left; aiohttp knows what to do
    except Exception:
        _log.exception("http request failed", method=request.method, path=request.path)
        return _failed(500, "internal error; the broker's log has the details")


def _failed(status: int, reason: str) -> web.Response:
    _FAILED.labels(status=str(status)).inc()
    return reason_response(status, reason)


def _bounded(requests_max: int) -> Middleware:
    in_process = 0

    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_process
        if in_process >= requests_max:
            return _failed(503, f"{requests_max} requests are in process already; try again")
        in_process += 1
        try:
            return await handler(request)
        finally:
            in_process -= 1

    return bounded
