"""Routes as data, and names out of request paths.

Every route is registered with the action and the resource it is authorized for, so that none can be added
without. Names are read from the path as it was sent: each is one segment, percent-decoded once, with '+' for
a space (so clients send a plus as %2B), which is how Pulsar reads them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import web
from magnetar.broker.admin.view import BrokerView
from magnetar.broker.authorization import authorize
from magnetar.common.errors import InvalidName, NamespaceNotFound
from magnetar.common.naming.namespace_name import NamespaceName, check_entity
from magnetar.common.naming.topic_name import TopicName

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

BROKER: Final = web.AppKey("broker", BrokerView)

PRINCIPAL: Final = None
"""Who asks, until there is authentication."""


def add_get(app: web.Application, path: str, handler: Handler, *, action: str) -> None:
    """Serve GET (and HEAD) of `path`; the caller must be allowed `action` on the path it asks for."""

    async def authorized(request: web.Request) -> web.StreamResponse:
        authorize(PRINCIPAL, action, "/".join(segments(request)))
        return await handler(request)

    app.router.add_get(path, authorized)


def segments(request: web.Request) -> list[str]:
    """The decoded segments of the request's path. Raises InvalidName when one is not UTF-8."""
    try:
        return [
            unquote_to_bytes(part.replace("+", " ")).decode()
            for part in request.rel_url.raw_path.strip("/").split("/")
        ]
    except UnicodeDecodeError as error:
        raise InvalidName("the path is not percent-encoded UTF-8") from error


def topic_in(domain: str, parts: list[str]) -> TopicName:
    """The topic named by the segments tenant, namespace, local name. Raises InvalidName."""
    tenant, namespace, *rest = parts
    return TopicName.of(domain, namespace_in(tenant, namespace), "/".join(rest))


def namespace_in(tenant: str, namespace: str) -> NamespaceName:
    """Raises InvalidName."""
    return NamespaceName(check_entity("tenant", tenant), check_entity("namespace", namespace))


async def require_namespace(broker: BrokerView, namespace: NamespaceName, reason: str) -> None:
    """Raises NamespaceNotFound with `reason`: Pulsar's routes each have their own words for it."""
    if not await broker.namespaces.exists(namespace):
        raise NamespaceNotFound(reason)


def flag(request: web.Request, name: str) -> bool:
    """A boolean query parameter; anything but 'true' is false."""
    return request.query.get(name, "").lower() == "true"
