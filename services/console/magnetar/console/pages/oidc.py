"""Login at an OpenID Connect issuer: to it, and back from it."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.console.browser_safety import (
    LOGIN_COOKIE,
    TOKEN_AGE_S,
    TOKEN_BYTES_MAX,
    TOKEN_COOKIE,
    clean_token,
    forget,
    keep,
)
from magnetar.console.errors import LoginFailed
from magnetar.console.oidc_login import LOGIN_AGE_S, GrantedToken, PendingLogin
from magnetar.console.pages.login import login_page, next_path, refused_by_cluster
from magnetar.console.visit import Visit

CALLBACK: Final = "/login/callback"


async def _begin(visit: Visit) -> web.Response:
    if visit.oidc is None:
        return await login_page(visit, problem="this console has no OpenID Connect issuer", status=404)
    try:
        url, pending = await visit.oidc.begin(next_path(visit))
    except LoginFailed as error:
        return await login_page(visit, problem=str(error), status=502)
    response = web.Response(status=303, headers={"Location": url})
    # Lax: the browser comes back by a link of the issuer's.
    keep(
        response,
        LOGIN_COOKIE,
        pending.cookie(),
        visit.link(CALLBACK),
        secure=visit.request.secure,
        age_s=LOGIN_AGE_S,
        samesite="Lax",
    )
    return response


async def _come_back(visit: Visit) -> web.Response:
    """Answers with a page and no redirect: a browser sends its Strict cookies only to a page that a page of
    this site asked for.
    """
    pending = PendingLogin.read(visit.request.cookies.get(LOGIN_COOKIE, ""))
    try:
        granted = await _granted(visit, pending)
    except LoginFailed as error:
        response = await login_page(visit, problem=str(error), status=401)
    else:
        assert pending is not None, "it was finished"
        response = await visit.page("logged_in.html", title="Logged in", next=pending.next)
        age_s = min(granted.age_s or TOKEN_AGE_S, TOKEN_AGE_S)
        keep(
            response,
            TOKEN_COOKIE,
            granted.token,
            visit.prefix or "/",
            secure=visit.request.secure,
            age_s=age_s,
        )
    forget(response, LOGIN_COOKIE, visit.link(CALLBACK))
    return response


async def _granted(visit: Visit, pending: PendingLogin | None) -> GrantedToken:
    if visit.oidc is None:
        raise LoginFailed("this console has no OpenID Connect issuer")
    granted = await visit.oidc.finish(pending, visit.request.query)
    if not clean_token(granted.token):
        raise LoginFailed(
            f"the issuer granted a token of {len(granted.token)} characters, and browsers keep "
            f"{TOKEN_BYTES_MAX}: have it grant one with fewer claims"
        )
    problem = await refused_by_cluster(visit, granted.token)
    if problem:
        raise LoginFailed(
            f"{problem}. Brokers need AuthenticationProviderOpenID, this issuer in "
            "openIDAllowedTokenIssuers and the token's audience in openIDAllowedAudiences"
        )
    return granted


READS = {"/login/oidc": _begin, CALLBACK: _come_back}
