"""Tenants and namespaces over HTTP."""

from __future__ import annotations

from aiohttp import web
from magnetar.broker.admin.routing import (
    BROKER,
    add_get,
    namespace_in,
    require_namespace,
    segments,
)
from magnetar.broker.admin.topics import visible_topics
from magnetar.common.errors import InvalidName, NamespaceNotFound
from magnetar.common.naming.namespace_name import check_entity

_MODES = {"PERSISTENT": (True,), "NON_PERSISTENT": (False,), "ALL": (True, False)}


def add_routes(app: web.Application) -> None:
    add_get(app, "/admin/v2/tenants", _tenants, action="admin")
    add_get(app, "/admin/v2/namespaces/{tenant}", _namespaces_of_tenant, action="admin")
    add_get(app, "/admin/v2/namespaces/{tenant}/{namespace}/topics", _topics_of_namespace, action="admin")


async def _tenants(request: web.Request) -> web.Response:
    return web.json_response(await request.app[BROKER].namespaces.tenants())


async def _namespaces_of_tenant(request: web.Request) -> web.Response:
    namespaces = request.app[BROKER].namespaces
    tenant = check_entity("tenant", segments(request)[3])
    if not await namespaces.tenant_exists(tenant):
        raise NamespaceNotFound("Tenant not found")
    return web.json_response([str(each) for each in await namespaces.namespaces_of(tenant)])


async def _topics_of_namespace(request: web.Request) -> web.Response:
    """What clients with an http:// service URL ask to subscribe by a pattern."""
    namespace = namespace_in(*segments(request)[3:5])
    mode = request.query.get("mode", "PERSISTENT").upper()
    if mode not in _MODES:
        raise InvalidName(f"the topic mode {mode!r} is not one of {', '.join(_MODES)}")
    broker = request.app[BROKER]
    await require_namespace(broker, namespace, "Namespace does not exist")
    found: list[str] = []
    for persistent in _MODES[mode]:
        found += await visible_topics(broker, namespace, persistent, system_too=False)
    return web.json_response(found)
