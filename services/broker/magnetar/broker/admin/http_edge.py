"""The HTTP port: one aiohttp application with the admin API, lookups, metrics and health.

Errors leave as Pulsar's `{"reason": ...}`, whatever raised them. The number of requests in process is
bounded: HTTP shares the event loop with the messages, and messages come first.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware
from magnetar.broker.admin.call import BROKER
from magnetar.broker.admin.http_connections import listen
from magnetar.broker.admin.http_errors import Refused, failed, status_of
from magnetar.broker.admin.peers import PEERS, Peers
from magnetar.broker.admin.request_log import log_requests
from magnetar.broker.admin.routing import serve
from magnetar.broker.admin.slices import TURN
from magnetar.broker.admin.table import routes
from magnetar.broker.admin.view import BrokerView
from magnetar.common.errors import MagnetarError
from magnetar.common.obs import health
from magnetar.common.obs.logs import get_logger

_log = get_logger("magnetar.broker.http")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REQUESTS_MAX: Final = 256
"""Requests in process at once; more are answered 503."""

BODY_BYTES_MAX: Final = 1024 * 1024
"""Longest body of a request, decompressed; longer ones are answered 413 and not read."""

_NOT_BOUNDED: Final = health.PATHS | {"/metrics", "/metrics/"}
"""Answered however many others are in process: who looks at a busy broker must see it. Scrapes have a bound
of their own.
"""

_SHUTDOWN_TIMEOUT_S: Final = 2.0


def create_app(broker: BrokerView) -> web.Application:
    """The application over `broker`; it keeps nothing but the label texts of the metrics page."""
    app = web.Application(
        middlewares=[_bounded(REQUESTS_MAX), _errors, _whole], client_max_size=BODY_BYTES_MAX
    )
    log_requests(app)
    app[BROKER] = broker
    app[TURN] = asyncio.Lock()
    if broker.cluster is not None:
        app[PEERS] = peers = Peers(broker.cluster.directory.is_current)
        app.on_cleanup.append(lambda _: peers.close())
    serve(app, routes(broker))
    return app


class HttpEdge:
    """Serves a broker over HTTP."""

    def __init__(self, broker: BrokerView) -> None:
        self._runner = web.AppRunner(create_app(broker), shutdown_timeout=_SHUTDOWN_TIMEOUT_S)
        self._listener: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serve connections of a socket that listens already; it stays the caller's to close."""
        await self._runner.setup()
        assert self._runner.server is not None, "setup makes it"
        self._listener = await listen(self._runner.server, listening)

    async def close(self) -> None:
        """Stop accepting, give requests in process a moment, end; idempotent."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()


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


def _bounded(requests_max: int) -> Middleware:
    in_process = 0

    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal in_process
        if request.path in _NOT_BOUNDED:
            return await handler(request)
        if in_process >= requests_max:
            return failed(503, f"{requests_max} requests are in process already; try again")
        in_process += 1
        try:
            return await handler(request)
        finally:
            in_process -= 1

    return bounded
