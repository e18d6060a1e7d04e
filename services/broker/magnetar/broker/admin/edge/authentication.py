"""Authentication of HTTP requests, before their bodies are read: who calls is kept with the request.

With authentication off nothing is looked at, and the request has no principal.
"""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from magnetar.broker.admin.edge.call import BROKER, PRINCIPAL
from magnetar.broker.admin.edge.errors import failed
from magnetar.common.errors import AuthenticationFailed, ServiceNotReady
from magnetar.common.http.request_peer import request_peer
from magnetar.common.obs import health
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.http_headers import ORIGINAL_PRINCIPAL
from magnetar.common.security.identity import Identity
from magnetar.common.security.principal import Principal
from magnetar.common.security.proxy_roles import role_problem

log = get_logger(__name__)

REQUIRED: Final = "Authentication required"

METRICS: Final = frozenset({"/metrics", "/metrics/"})
"""Open unless authenticateMetricsEndpoint says otherwise."""

OPEN: Final = health.PATHS | {"/health", "/status.html", "/openapi.json", "/docs", "/"}
"""Paths that are answered without credentials: probes, and descriptions of the API."""

_INVALID_ROLES: Final = LogLimit()


@web.middleware
async def authenticated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer 401 to requests without acceptable credentials; leave the principal of others in PRINCIPAL."""
    broker = request.app[BROKER]
    authenticator = broker.authenticator
    if authenticator is None or _is_open(request.path, broker.config.authentication.metrics_endpoint):
        return await handler(request)
    peer = request_peer(request)
    try:
        identity = await authenticator.authenticate_http(request.headers, peer.certificate, peer.host)
    except AuthenticationFailed:
        return _refused(request, 401, REQUIRED)
    except ServiceNotReady as error:
        return _refused(request, 503, str(error))
    original = request.headers.get(ORIGINAL_PRINCIPAL)
    principal = _principal(identity, original, broker.proxy_roles, peer.address)
    if principal is None:
        return _refused(request, 401, "Invalid roles.")
    request[PRINCIPAL] = principal
    return await handler(request)


def _is_open(path: str, metrics_endpoint: bool) -> bool:
    return path in OPEN or (path in METRICS and not metrics_endpoint)


def _principal(
    identity: Identity, original: str | None, proxy_roles: frozenset[str] | None, address: str
) -> Principal | None:
    """The principal of a request; None for a combination of roles that may not be."""
    role = identity.role
    if proxy_roles is None:
        return Principal(role, None, identity.method, address)
    problem = role_problem(role, original, proxy_roles, may_repeat=True)
    if problem is not None:
        count = _INVALID_ROLES.note(time.monotonic())
        if count:
            log.info("invalid roles", peer=address, role=role, reason=problem, requests=count)
        return None
    return Principal(role, original if role in proxy_roles else None, identity.method, address)


def _refused(request: web.Request, status: int, reason: str) -> web.Response:
    """An error response; the connection is closed where a body would have to be read first."""
    response = failed(status, reason)
    if request.body_exists:
        request.content.feed_eof()
        response.force_close()
    return response
