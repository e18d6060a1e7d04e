"""Routes of the broker configuration: reads all settings and changes dynamic ones."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.policies.policy_requests import APPLY_SECONDS_MAX
from magnetar.broker.dynamic_config import BadValue, NotDynamic
from magnetar.common.security.authorization.operations import Operation


async def _names(call: Call) -> web.Response:
    return answer(call.broker.dynamic_config.names)


async def _values(call: Call) -> web.Response:
    return answer(await call.broker.dynamic_config.values())


async def _running(call: Call) -> web.Response:
    return answer(call.broker.dynamic_config.running())


async def _set(call: Call) -> web.Response:
    key, value = call.names["configName"], call.names["configValue"]
    try:
        await call.broker.dynamic_config.set(key, value)
    except NotDynamic as error:
        raise _not_dynamic() from error
    except BadValue as error:
        raise Refused(412, f"Invalid dynamic-config value: {error}") from error
    return await _applied(call)


async def _remove(call: Call) -> web.Response:
    try:
        await call.broker.dynamic_config.remove(call.names["configName"])
    except NotDynamic as error:
        raise _not_dynamic() from error
    return await _applied(call)


async def _applied(call: Call) -> web.Response:
    await call.broker.registry.policies_applied(APPLY_SECONDS_MAX)
    return nothing()


def _not_dynamic() -> Refused:
    return Refused(412, "Can't update non-dynamic configuration")


_PATH: Final = "/admin/v2/brokers/configuration"
_ERRORS: Final = {
    409: "concurrent modification of the configuration",
    412: "Can't update non-dynamic configuration; Invalid dynamic-config value",
}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="brokers",
        method=method,
        path=f"{_PATH}{path}",
        handler=handler,
        summary=summary,
        **more,
        operation=Operation.SUPER_USER,
    )


ROUTES: Final = [
    _route("GET", "", _names, "List the settings that can be changed at run time.", answer="List<String>"),
    _route(
        "GET",
        "/runtime",
        _running,
        "Get the current values of all settings of the broker.",
        answer="Map<String, String>",
    ),
    _route(
        "GET",
        "/values",
        _values,
        "Get the settings that were changed at run time.",
        answer="Map<String, String>",
    ),
    _route(
        "POST",
        "/{configName}/{configValue}",
        _set,
        "Change a setting on all brokers at run time.",
        errors=_ERRORS,
    ),
    _route(
        "DELETE",
        "/{configName}",
        _remove,
        "Reset a setting to the value that each broker was started with.",
        errors=_ERRORS,
    ),
]
