"""Login by token: the browser keeps the visitor's token in a cookie that no script reads."""

from __future__ import annotations

from aiohttp import web
from magnetar.console.admin_api import Caller
from magnetar.console.admin_paths import V2
from magnetar.console.browser_safety import TOKEN_AGE_S, TOKEN_COOKIE, clean_token, forget, keep
from magnetar.console.errors import AdminRefused, LoginRequired
from magnetar.console.visit import Visit


async def login_page(visit: Visit, *, problem: str = "", status: int = 200) -> web.Response:
    """Returns the page that asks for a login, with the reason why the last one failed."""
    oidc = visit.oidc
    return await visit.page(
        "login.html",
        title="Log in",
        next=next_path(visit),
        problem=problem,
        issuer="" if oidc is None else oidc.name,
        end_url=await oidc.end_url() if oidc is not None and visit.text("ended") else "",
        status=status,
    )


async def refused_by_cluster(visit: Visit, token: str) -> str:
    """Returns why the cluster does not take a token; empty if it does."""
    try:
        await Caller(visit.admin.api, token).get(f"{V2}/clusters")
    except LoginRequired:
        return "the cluster refused this token: it may have expired, or be signed with another key"
    except AdminRefused:
        pass  # the token is known; what it may see is shown page by page
    return ""


def next_path(visit: Visit) -> str:
    """Returns the path to go on to: within the console, whatever the parameter says."""
    path = visit.text("next")
    safe = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if safe and path.isascii() else "/"


async def _login(visit: Visit) -> web.Response:
    return await login_page(visit)


async def _log_in(visit: Visit) -> web.Response:
    token = clean_token(visit.text("token"))
    if token:
        problem = await refused_by_cluster(visit, token)
    else:
        problem = "this is not a token: paste the text that `magnetar tokens create` printed"
    if problem:
        return await login_page(visit, problem=problem, status=401)
    response = visit.redirect(next_path(visit))
    path, secure = visit.prefix or "/", visit.request.secure
    keep(response, TOKEN_COOKIE, token, path, secure=secure, age_s=TOKEN_AGE_S)
    return response


async def _log_out(visit: Visit) -> web.Response:
    response = visit.redirect("/login?ended=1")
    forget(response, TOKEN_COOKIE, visit.prefix or "/")
    return response


READS = {"/login": _login}
CHANGES = {"/login": _log_in, "/logout": _log_out}
