"""Protection of browsers: headers of every page, the cookies, and the token in every form.

Scripts and styles come from the console's own files alone, so that text of a message or a name is never
executed, even where it got into a page. A form that changes something carries a token which only pages of
this console can know: it is derived from a cookie that no script reads and no other site's request carries.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from aiohttp import web
from magnetar.console.errors import ForgedRequest

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: browsers then send no Origin with forms, by which other sites are refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer."""

VISIT_COOKIE: Final = "magnetar_console_visit"
"""A random number that identifies a browser; forms carry a token derived from it."""

TOKEN_COOKIE: Final = "magnetar_console_token"
"""The visitor's token for the admin API and for brokers."""

LOGIN_COOKIE: Final = "magnetar_console_login"
"""The login at an OpenID Connect issuer that this browser has begun."""

TOKEN_BYTES_MAX: Final = 3800
"""Longest token, which browsers keep in a cookie of 4096 bytes."""

TOKEN_AGE_S: Final = 12 * 3600
"""Seconds until a browser forgets the token."""

FORM_FIELD: Final = "form_token"

_VISIT: Final = re.compile(r"[0-9a-f]{64}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.+/=-]+")


def visit_of(request: web.Request) -> str:
    """Return the number of the browser; empty if it has none yet."""
    visit = request.cookies.get(VISIT_COOKIE, "")
    return visit if _VISIT.fullmatch(visit) else ""


def new_visit() -> str:
    return secrets.token_hex(32)


def form_token(visit: str) -> str:
    """Return the token of the forms that this browser gets."""
    return hmac.new(visit.encode(), b"console form", hashlib.sha256).hexdigest()


def check_form(visit: str, given: str) -> None:
    """Raises ForgedRequest unless a form has the token of this browser."""
    if not visit or not hmac.compare_digest(form_token(visit).encode(), given.encode()):
        raise ForgedRequest("this form is not of a page that this browser has open; load the page again")


def token_of(request: web.Request) -> str:
    """Return the visitor's token; empty without a login."""
    return clean_token(request.cookies.get(TOKEN_COOKIE, ""))


def clean_token(text: str) -> str:
    """Return a token that can be sent in a header and kept in a cookie; empty for any other text."""
    text = text.strip().removeprefix("Bearer ").removeprefix("token:").strip()
    return text if len(text) <= TOKEN_BYTES_MAX and _TOKEN.fullmatch(text) else ""


def keep(
    response: web.StreamResponse,
    name: str,
    value: str,
    path: str,
    *,
    secure: bool,
    age_s: int,
    samesite: str = "Strict",
) -> None:
    """Have the browser keep a cookie that scripts cannot read and other sites' requests do not carry; with
    "Lax" their links do.
    """
    response.set_cookie(
        name, value, path=path, max_age=age_s, httponly=True, samesite=samesite, secure=secure
    )


def forget(response: web.StreamResponse, name: str, path: str) -> None:
    response.del_cookie(name, path=path, httponly=True, samesite="Strict")
