"""Routes of the admin API as data: a verb on an object, with its parameters, response and errors.

The HTTP server, the OpenAPI document and the Markdown reference are made from the same routes. Every route
carries the class of operations that it is authorized as. Names are read from the raw path: each is one
segment, percent-decoded once, with '+' for a space (so clients send a plus as %2B), as Pulsar reads them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.authorization import authorize
from magnetar.broker.admin.edge.call import BROKER, PRINCIPAL, Call
from magnetar.broker.admin.edge.owners import require_topic_here
from magnetar.common.errors import NamespaceNotFound, ServiceNotReady
from magnetar.common.http.cross_site import READS
from magnetar.common.http.paths import segments
from magnetar.common.security.audit import audit
from magnetar.common.security.authorization.operations import Operation

Handler = Callable[[Call], Awaitable[web.StreamResponse]]

TABLE: Final = web.AppKey("table", list["Route"])
"""The routes of an application, for its descriptions."""

COMMON_ERRORS: Final[Mapping[int, str]] = {
    307: "another broker owns the topic",
    400: "the body or a parameter is malformed",
    401: "the caller is not authenticated, or lacks the right that the reason names",
    403: "the caller lacks the right that the reason names",
    408: "the body did not arrive in time",
    413: "the body is too large",
    415: "the content type of the body is not JSON",
    500: "internal error of the broker",
    503: "temporarily unavailable; try again later",
}
"""Errors that every route may return, besides its own."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    type: str
    default: bool | int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A verb on an object."""

    object: str
    """The object of the route: 'tenants', 'namespaces', 'persistent' ..."""
    method: str
    path: str
    """The path; names in it are `{name}`, each a whole segment."""
    handler: Handler
    summary: str
    operation: Operation
    """The class of operations: who may do this, and how a refusal looks."""
    names_in_body: bool = False
    """Whether the body names what is administered: the handler checks the operation once it is read."""
    reads_messages: bool = False
    """Whether messages are shown, which the audit log has."""
    query: tuple[str, ...] = ()
    """Query parameters as `name:type` or `name:type=default`."""
    body: str = ""
    """The type of the request body; empty for none."""
    status: int = 200
    """The status of success."""
    also: Mapping[int, str] = field(default_factory=dict)
    """Other statuses of success, with their meaning."""
    answer: str = ""
    """The type of the response body; empty for none."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """Errors by status, besides COMMON_ERRORS."""
    anywhere: bool = False
    """Whether the route is about the broker itself, so that it works while the broker serves no clients."""
    tenant_first: bool = False
    """Whether a missing tenant is reported before any other error, as in Pulsar."""
    at_owner: bool = False
    """Whether only the owner of the topic handles the call: other brokers redirect it before they read the
    body. Any broker handles calls on partitioned topics, and calls the owner of each partition.
    """

    @property
    def parameters(self) -> list[Parameter]:
        """The query parameters."""
        return [_parameter(text) for text in self.query]

    @property
    def needs_owner(self) -> bool:
        """Whether only a broker that serves clients may handle the call: it loads topics or changes their
        metadata.
        """
        return not self.anywhere and (self.method != "GET" or "{topic}" in self.path)

    def names_in(self, parts: list[str]) -> dict[str, str]:
        """Returns the named segments of a path that matched."""
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
    """Adds these routes to the application; HEAD is handled where GET is."""
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
        broker = request.app[BROKER]
        call = Call(request, broker, parts, route.names_in(parts), route.body)
        await authorize(call, Operation.ANY if route.names_in_body else route.operation, route.path)
        if broker.not_ready is not None and route.needs_owner:
            raise ServiceNotReady(f"this broker does not serve clients now: {broker.not_ready}")
        if route.tenant_first and not await broker.namespaces.tenant_exists(call.tenant):
            raise NamespaceNotFound("Tenant does not exist")
        if route.at_owner:
            await require_topic_here(call)
        return await route.handler(call)

    return _audited(route, authorized)


def _audited(
    route: Route, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Have what changes something, or shows messages, in the audit log, with its outcome."""
    if route.method in READS and not route.reads_messages:
        return handler
    event = "messages read" if route.reads_messages else "admin call"

    async def audited(request: web.Request) -> web.StreamResponse:
        try:
            response = await handler(request)
        except Exception as error:
            _audit(event, request, getattr(error, "status", None), type(error).__name__)
            raise
        _audit(event, request, response.status, "done" if response.status < 400 else "refused")
        return response

    return audited


def _audit(event: str, request: web.Request, status: int | None, outcome: str) -> None:
    principal = request.get(PRINCIPAL)
    if principal is not None:
        path = request.rel_url.raw_path
        audit(
            event, principal=principal, resource=path, action=request.method, outcome=outcome, status=status
        )
