"""Routes of entry filters, which are not supported: none can be set, and lists are empty."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import (
    require_namespace,
    require_topic,
    require_topic_policies,
    topic_routes,
)
from magnetar.common.security.authorization.operations import Operation

_KEY: Final = "entryFilterNames"


async def _get(call: Call) -> web.Response:
    await _require(call)
    return answer({_KEY: ""}) if "topic" in call.names and call.flag("applied") else nothing()


async def _set(call: Call) -> web.Response:
    await _require(call)
    given = await call.json()
    names = given.get(_KEY) if isinstance(given, dict) else None
    if not isinstance(names, str):
        raise Refused(400, f"the body must be an object with the string {_KEY}")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise Refused(400, f"{_KEY} can't be empty; DELETE removes entry filters")
    raise Refused(
        400,
        f"Entry filter '{wanted[0]}' not found: entry filters are not supported; have consumers skip "
        "unwanted messages, or publish them to another topic",
    )


async def _remove(call: Call) -> web.Response:
    await _require(call)
    return done()


async def _require(call: Call) -> None:
    """Checks that the namespace or topic exists. Raises NamespaceNotFound, TopicNotFound, InvalidName."""
    if "topic" not in call.names:
        await require_namespace(call.broker, call.namespace, "Namespace does not exist")
        return
    require_topic_policies(call)
    await require_namespace(call.broker, call.namespace, "Namespace not found")
    await require_topic(call.broker, call.topic, may_be_created=False)


def _namespace_route(method: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="namespaces",
        method=method,
        path=f"{NAMESPACE_PATH}/entryFilters",
        handler=handler,
        summary=summary,
        errors={**NAMESPACE_ERRORS, **more.pop("errors", {})},
        **more,
        operation=Operation.POLICY,
    )


_NONE: Final = {400: "there is no such entry filter; the body is malformed"}

ROUTES: Final = [
    _namespace_route(
        "GET",
        _get,
        "Get the entry filters: always empty, because entry filters are not supported.",
        answer="EntryFilters",
    ),
    _namespace_route(
        "POST",
        _set,
        "Set entry filters: always refused, because entry filters are not supported.",
        body="EntryFilters",
        status=204,
        errors=_NONE,
    ),
    _namespace_route(
        "DELETE",
        _remove,
        "Remove the entry filters: succeeds without effect, because entry filters are not supported.",
        status=204,
    ),
    *topic_routes(
        "GET",
        "entryFilters",
        _get,
        "Get the entry filters: always empty, because entry filters are not supported.",
        query=("applied:boolean=false",),
        answer="EntryFilters",
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "POST",
        "entryFilters",
        _set,
        "Set entry filters: always refused, because entry filters are not supported.",
        body="EntryFilters",
        status=204,
        errors=_NONE,
        operation=Operation.POLICY,
    ),
    *topic_routes(
        "DELETE",
        "entryFilters",
        _remove,
        "Remove the entry filters: succeeds without effect, because entry filters are not supported.",
        status=204,
        operation=Operation.POLICY,
    ),
]
