"""Routes of resource quotas: the expected load of bundles."""

from __future__ import annotations

import math
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.bundles import bundle_in
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS
from magnetar.common.metadata.values import Namespace, ResourceQuota
from magnetar.common.security.authorization.operations import Operation

_FIELDS: Final = {
    "msgRateIn": "message_rate_in",
    "msgRateOut": "message_rate_out",
    "bandwidthIn": "bandwidth_in",
    "bandwidthOut": "bandwidth_out",
    "memory": "memory",
}


async def _default(call: Call) -> web.Response:
    return answer(_json(await call.broker.resource_quotas.default()))


async def _set_default(call: Call) -> web.Response:
    await call.broker.resource_quotas.set_default(_read(await call.json()))
    return done()


async def _get(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    bundle = str(bundle_in(call, namespace))
    if bundle in namespace.resource_quotas:
        return answer(_json(namespace.resource_quotas[bundle]))
    return await _default(call)


async def _set(call: Call) -> web.Response:
    await call.broker.policy_writer.namespace(call.namespace)
    quota = _read(await call.json())

    def edit(namespace: Namespace) -> None:
        namespace.resource_quotas[str(bundle_in(call, namespace))].CopyFrom(quota)

    await call.broker.policy_writer.change_namespace(call.namespace, edit)
    return done()


async def _reset(call: Call) -> web.Response:
    def edit(namespace: Namespace) -> None:
        namespace.resource_quotas.pop(str(bundle_in(call, namespace)), None)

    await call.broker.policy_writer.change_namespace(call.namespace, edit)
    return done()


def _read(value: Any) -> ResourceQuota:
    """Parses a quota; missing members are 0, a missing `dynamic` is true. Raises Refused (400)."""
    if not isinstance(value, dict):
        raise Refused(400, "a resource quota must be an object")
    quota = ResourceQuota(dynamic=True)
    for name, field in _FIELDS.items():
        number = value.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise Refused(400, f"{name} must be a number")
        try:
            amount = float(number)
        except OverflowError:
            amount = math.inf
        if not math.isfinite(amount) or amount < 0:
            raise Refused(400, f"{name} must be 0 or more, and finite")
        setattr(quota, field, amount)
    dynamic = value.get("dynamic")
    if dynamic is not None:
        if not isinstance(dynamic, bool):
            raise Refused(400, "dynamic must be true or false")
        quota.dynamic = dynamic
    return quota


def _json(quota: ResourceQuota) -> dict[str, Any]:
    return {**{name: getattr(quota, field) for name, field in _FIELDS.items()}, "dynamic": quota.dynamic}


_PATH: Final = "/admin/v2/resource-quotas"
_BUNDLE: Final = f"{_PATH}/{{tenant}}/{{namespace}}/{{bundle}}"
_ERRORS: Final = {**NAMESPACE_ERRORS, 412: "Invalid bundle range; invalid name"}
_CHANGED: Final = {**_ERRORS, 409: "Concurrent modification"}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="resource-quotas",
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        **more,
        operation=Operation.SUPER_USER,
    )


ROUTES: Final = [
    _route("GET", _PATH, _default, "Get the default resource quota of bundles.", answer="ResourceQuota"),
    _route(
        "POST",
        _PATH,
        _set_default,
        "Set the default resource quota of bundles. Stored only: it does not affect placement.",
        body="ResourceQuota",
        status=204,
        errors={409: "Concurrent modification"},
    ),
    _route(
        "GET", _BUNDLE, _get, "Get the resource quota of a bundle.", answer="ResourceQuota", errors=_ERRORS
    ),
    _route(
        "POST",
        _BUNDLE,
        _set,
        "Set the resource quota of a bundle. Stored only: it does not affect placement.",
        body="ResourceQuota",
        status=204,
        errors=_CHANGED,
    ),
    _route(
        "DELETE",
        _BUNDLE,
        _reset,
        "Reset the resource quota of a bundle to the default.",
        status=204,
        errors=_CHANGED,
    ),
]
