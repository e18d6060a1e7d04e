"""Login by token: the browser keeps the visitor's token in a cookie that no script reads."""

from __future__ import annotations

from aiohttp import web
from magnetar.console.admin_api import Caller
from magnetar.console.admin_paths import V2
from magnetar.console.browser_safety import TOKEN_AGE_S, TOKEN_COOKIE, clean_token, forget, keep
from magnetar.console.errors import AdminRefused, LoginRequired
from magnetar.console.visit import Visit


async def _login(visit: Visit) -> web.Response:
    return await visit.page("login.html", title="Log in", next=_next(visit), problem="")


async def _log_in(visit: Visit) -> web.Response:
    token = clean_token(visit.text("token"))
    problem = "" if token else "this is not a token: paste the text that `magnetar tokens create` printed"
    if token:
        try:
            await Caller(visit.admin.api, token).get(f"{V2}/clusters")
        except LoginRequired:
            problem = "the cluster refused this token: it may have expired, or be signed with another key"
        except AdminRefused:
            pass  # the token is known; what it may see is shown page by page
    if problem:
        return await visit.page("login.html", title="Log in", next=_next(visit), problem=problem, status=401)
    response = visit.redirect(_next(visit))
    path, secure = visit.prefix or "/", visit.request.secure
    keep(response, TOKEN_COOKIE, token, path, secure=secure, age_s=TOKEN_AGE_S)
    return response


async def _log_out(visit: Visit) -> web.Response:
    response = visit.redirect("/login")
    forget(response, TOKEN_COOKIE, visit.prefix or "/")
    return response


def _next(visit: Visit) -> str:
    """Return the path to go on to: within the console, whatever the parameter says."""
    path = visit.text("next")
    safe = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if safe and path.isascii() else "/"


READS = {"/login": _login}
CHANGES = {"/login": _log_in, "/logout": _log_out}
