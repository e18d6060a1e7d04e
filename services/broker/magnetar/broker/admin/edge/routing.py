"""The admin API as a table: each route is one verb on one object, with what it takes, answers and refuses.

Whatever needs to know the API reads this table: the HTTP server its routes, a reference its pages. Every
route carries the action it is authorized for, so that none can be added without. Names are read from the path
as it was sent: each is one segment, percent-decoded once, with '+' for a space (so clients send a plus as
%2B), which is how Pulsar reads them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import BROKER, Call
from magnetar.broker.admin.edge.owners import require_topic_here
from magnetar.broker.authorization import authorize
from magnetar.common.errors import NamespaceNotFound, ServiceNotReady
from magnetar.common.http.paths import segments

Handler = Callable[[Call], Awaitable[web.StreamResponse]]

TABLE: Final = web.AppKey("table", list["Route"])
"""The routes of an application, for what describes them."""

PRINCIPAL: Final = None
"""Who asks, until there is authentication."""

COMMON_ERRORS: Final[Mapping[int, str]] = {
    307: "the broker that owns the topic is another one",
    400: "the body or a parameter is malformed",
    403: "the caller may not do this",
    408: "the body did not arrive in time",
    413: "the body is too long",
    415: "the body is not said to be JSON",
    500: "an error of this broker",
    503: "it may work later",
}
"""What every route may answer, besides its own errors."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query."""

    name: str
    type: str
    default: bool | int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One verb on one object."""

    object: str
    """What it is about: 'tenants', 'namespaces', 'persistent' ..."""
    method: str
    path: str
    """With the names in it as `{name}`, each a whole segment."""
    handler: Handler
    summary: str
    action: str = "admin"
    query: tuple[str, ...] = ()
    """Parameters as `name:type` or `name:type=default`."""
    body: str = ""
    """The type of the request's body; empty for none."""
    status: int = 200
    """Of success."""
    also: Mapping[int, str] = field(default_factory=dict)
    """Other statuses of success, and when they are answered."""
    answer: str = ""
    """The type of the answer's body; empty for none."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """What it refuses, by status, besides COMMON_ERRORS."""
    anywhere: bool = False
    """It is about the broker that is asked: one that serves nobody now does it, too."""
    tenant_first: bool = False
    """A tenant that does not exist is told before anything else, as in Pulsar."""
    at_owner: bool = False
    """Done by the broker that serves the topic: others send who asks on to it, before they read the body.
    Calls on topics with partitions are taken by any broker, and asked of the owner of each partition.
    """

    @property
    def parameters(self) -> list[Parameter]:
        """Those of its query."""
        return [_parameter(text) for text in self.query]

    @property
    def needs_owner(self) -> bool:
        """Only a broker that serves clients may do it: it loads topics, or changes what is kept of them."""
        return not self.anywhere and (self.method != "GET" or "{topic}" in self.path)

    def names_in(self, parts: list[str]) -> dict[str, str]:
        """The names in the segments of a path that matched."""
        template = self.path.strip("/").split("/")
        return {key[1:-1]: value for key, value in zip(template, parts, strict=True) if key.startswith("{")}


def _parameter(text: str) -> Parameter:
    name, _, rest = text.partition(":")
    type_name, has_default, default = rest.partition("=")
    if not has_default:
        return Parameter(name, type_name)
    if type_name == "boolean":
        return Parameter(name, type_name, default == "true")
    return Parameter(name, type_name, int(default) if type_name in ("int", "long") else default)


def serve(app: web.Application, routes: Iterable[Route]) -> None:
    """Answer these routes; HEAD is answered where GET is."""
    app[TABLE] = table = list(routes)
    for route in table:
        handler = _authorized(route)
        if route.method == "GET":
            app.router.add_get(route.path, handler)
        else:
            app.router.add_route(route.method, route.path, handler)


def _authorized(route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def authorized(request: web.Request) -> web.StreamResponse:
        parts = segments(request.rel_url.raw_path)
        authorize(PRINCIPAL, route.action, "/".join(parts))
        broker = request.app[BROKER]
        if broker.not_ready is not None and route.needs_owner:
            raise ServiceNotReady(f"this broker serves nobody now: {broker.not_ready}")
        call = Call(request, broker, parts, route.names_in(parts), route.body)
        if route.tenant_first and not await broker.namespaces.tenant_exists(call.tenant):
            raise NamespaceNotFound("Tenant does not exist")
        if route.at_owner:
            await require_topic_here(call)
        return await route.handler(call)

    return authorized
