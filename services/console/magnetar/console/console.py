"""The console as one function of a request, at the root of a port of its own or below a path of another one.

    /                        overview
    /tenants, /namespaces    what there is
    /topics                  topics of a namespace, searched, in pages
    /topic, /subscription    one of them
    /brokers, /bundle        brokers with their bundles
    /bookies                 bookies, recovery
    /offloads                offload runs of a namespace
    /messages, /publish      messages of a topic
    /resend                  asks, then publishes a dead letter to its origin topic
    /change                  asks, then does it
    /login, /logout
    /login/oidc              to an OpenID Connect issuer; /login/callback comes back from it
    /static/...              scripts and styles

Objects are named by parameters of the query, because names may hold any character.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from aiohttp import web
from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.console.admin_api import AdminApi, Caller
from magnetar.console.browser_safety import (
    FORM_FIELD,
    HEADERS,
    VISIT_COOKIE,
    check_form,
    keep,
    new_visit,
    token_of,
    visit_of,
)
from magnetar.console.cluster_access import ClusterAccess
from magnetar.console.errors import (
    AdminRefused,
    AdminUnreachable,
    BadRequest,
    ForgedRequest,
    LoginRequired,
)
from magnetar.console.live_streams import LiveStreams
from magnetar.console.message_reading import MessageReading
from magnetar.console.oidc_login import OidcLogin
from magnetar.console.pages import (
    bookies,
    brokers,
    changes,
    directory,
    login,
    messages,
    offloads,
    oidc,
    overview,
    resends,
    static_files,
    subscription,
    topic,
)
from magnetar.console.process_watch import ProcessWatch
from magnetar.console.visit import Visit

_log = get_logger("magnetar.console")

View = Callable[[Visit], Awaitable[web.StreamResponse]]

READS: Final[dict[str, View]] = {
    **overview.READS,
    **directory.READS,
    **brokers.READS,
    **bookies.READS,
    **offloads.READS,
    **topic.READS,
    **subscription.READS,
    **messages.READS,
    **changes.READS,
    **resends.READS,
    **login.READS,
    **oidc.READS,
}
"""Views of GET by path. They change nothing."""

CHANGES: Final[dict[str, View]] = {**messages.CHANGES, **changes.CHANGES, **resends.CHANGES, **login.CHANGES}
"""Views of POST by path. Their forms' token was checked."""

_STATUSES: Final = {401: 403, 403: 403, 404: 404, 405: 405, 409: 409, 412: 412, 503: 503}
"""Statuses of pages by those of the admin API; a missing right is 401 there, which is no matter of login."""

VISIT_AGE_S: Final = 30 * 24 * 3600

_STATIC: Final = "/static/"


class Console:
    """Serves the pages of one cluster. Create it on the event loop that serves it; end it with `close`."""

    def __init__(self, access: ClusterAccess, prefix: str = "", *, oidc: OidcLogin | None = None) -> None:
        """`prefix` is the path before that of a page, without a slash at its end. It closes `oidc`."""
        self._oidc = oidc
        self._prefix = prefix
        self._admin = AdminApi(access)
        self._streams = LiveStreams()
        self._messages = MessageReading(access)
        self._watch = ProcessWatch(self._admin, access.prometheus_url)

    async def close(self) -> None:
        """End live views and connections. Idempotent."""
        self._streams.close()
        await self._admin.close()
        if self._oidc is not None:
            await self._oidc.close()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Returns the answer to a request for a path that begins with the prefix."""
        path = request.path.removeprefix(self._prefix) or "/"
        if path.startswith(_STATIC):
            response: web.StreamResponse = static_files.serve(path.removeprefix(_STATIC))
            response.headers.update(HEADERS)
            return response
        browser = visit_of(request)
        visit = self._visit(request, browser or new_visit())
        response = await self._answer(visit, path, is_new=not browser)
        if not response.prepared:
            self._finish(visit, response, is_new=not browser)
        return response

    def _finish(self, visit: Visit, response: web.StreamResponse, *, is_new: bool) -> None:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        if is_new and visit.request.path.removeprefix(self._prefix) != oidc.CALLBACK:
            # Back from an issuer, a browser does not send its number, and has it all the same.
            keep(
                response,
                VISIT_COOKIE,
                visit.browser,
                self._prefix or "/",
                secure=visit.request.secure,
                age_s=VISIT_AGE_S,
            )

    def _visit(self, request: web.Request, browser: str, form: dict[str, str] | None = None) -> Visit:
        caller = Caller(self._admin, token_of(request))
        return Visit(
            request,
            caller,
            self._streams,
            self._messages,
            self._watch,
            self._oidc,
            self._prefix,
            browser,
            form or {},
        )

    async def _answer(self, visit: Visit, path: str, *, is_new: bool) -> web.StreamResponse:
        try:
            if visit.request.method in ("GET", "HEAD"):
                view = READS.get(path)
            elif visit.request.method == "POST":
                view = CHANGES.get(path)
                fields = await visit.request.post()
                form = {name: value for name, value in fields.items() if isinstance(value, str)}
                check_form("" if is_new else visit.browser, form.get(FORM_FIELD, ""))
                visit = self._visit(visit.request, visit.browser, form)
            else:
                view = None
            if view is None:
                return await _problem(visit, 404, f"there is no page {visit.request.method} {path[:200]}")
            return await view(visit)
        except LoginRequired:
            return _to_login(visit)
        except BadRequest as error:
            return await _problem(visit, 400, str(error))
        except ForgedRequest as error:
            return await _problem(visit, 403, str(error))
        except AdminRefused as error:
            return await _problem(visit, _STATUSES.get(error.status, 502), str(error))
        except AdminUnreachable as error:
            return await _problem(visit, 502, str(error))
        except web.HTTPRequestEntityTooLarge:
            return await _problem(visit, 413, "the form has more than 1 MiB")
        except ConfigError as error:
            return await _problem(visit, 502, str(error))
        except MagnetarError as error:
            return await _problem(visit, 502, str(error))
        except ConnectionError:
            raise  # the browser is gone; aiohttp handles it
        except Exception:
            _log.exception("console page failed", path=path)
            return await _problem(visit, 500, "internal error; see the console's log")


def _to_login(visit: Visit) -> web.Response:
    """Returns the answer that shows the login, and afterwards the page that was asked for."""
    asked = "" if visit.is_part or visit.request.method != "GET" else visit.request.path_qs
    location = visit.link(f"/login?{urlencode({'next': asked.removeprefix(visit.prefix)})}")
    if visit.is_part:
        return web.Response(status=204, headers={"HX-Redirect": location})
    return web.Response(status=303, headers={"Location": location})


async def _problem(visit: Visit, status: int, reason: str) -> web.Response:
    """Returns a page, or a part of one, with the reason why there is no other."""
    if visit.is_part:
        # htmx shows answers of success only.
        return await visit.page("_problem.html", reason=reason, status=200)
    return await visit.page("problem.html", reason=reason, status=status, title="Problem")
