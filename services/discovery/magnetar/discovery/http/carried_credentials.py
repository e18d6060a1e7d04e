"""Credentials of HTTP requests that are carried to brokers.

Discovery vouches for nothing: an Authorization header goes on as it is. A client certificate ends here, so
that its role goes on as the original principal, beside discovery's own certificate. That certificate is shown
for such requests only: any other request over a connection that shows it could become discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiohttp import web
from magnetar.common.errors import AuthenticationFailed
from magnetar.common.http.request_peer import request_peer
from magnetar.common.security.http_headers import AUTH_METHOD, ORIGINAL_PRINCIPAL
from magnetar.common.security.identity import TLS
from magnetar.discovery.handlers.handshake import role_of

_AUTHORIZATION: Final = "Authorization"


@dataclass(frozen=True, slots=True)
class CarriedCredentials:
    """Headers that say who calls, and whether the connection must show discovery's certificate."""

    headers: list[tuple[str, str]]
    as_proxy: bool


def carried_credentials(request: web.Request, *, as_proxy: bool) -> CarriedCredentials:
    """Return the credentials with which a request goes on.

    `as_proxy`: whether discovery has a certificate for brokers. Raises AuthenticationFailed when the request
    names method tls, and has no client certificate or cannot go on by one.
    """
    method, authorization = request.headers.get(AUTH_METHOD), request.headers.get(_AUTHORIZATION)
    certificate = request_peer(request).certificate
    by_certificate = method == TLS or authorization is None
    if by_certificate and as_proxy and certificate is not None:
        return CarriedCredentials(
            [(AUTH_METHOD, TLS), (ORIGINAL_PRINCIPAL, role_of(certificate))], as_proxy=True
        )
    if method == TLS:
        raise AuthenticationFailed("method tls needs a certificate of the client, and one of discovery")
    if authorization is None:
        return CarriedCredentials([], as_proxy=False)
    named = [] if method is None else [(AUTH_METHOD, method)]
    return CarriedCredentials([(_AUTHORIZATION, authorization), *named], as_proxy=False)
