"""Routes of namespace policies: GET, POST and DELETE of each, from the table of fields."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.policies.policy_fields import FIELDS, PolicyField
from magnetar.broker.admin.policies.policy_json import BadPolicy
from magnetar.broker.admin.policies.policy_kinds import (
    QUOTA_FIELDS,
    check_quota_within_retention,
    put_quota,
    quota_map,
)
from magnetar.broker.admin.policies.policy_requests import (
    APPLY_SECONDS_MAX,
    QUOTA_QUERY,
    quota_type_of,
    setting,
    value_of,
)
from magnetar.common.metadata.values import Namespace, Policies
from magnetar.common.security.authorization.operations import Operation


async def _get(field: PolicyField, call: Call) -> web.Response:
    policies = (await call.broker.policy_writer.namespace(call.namespace)).policies
    if policies.HasField(field.api.proto):  # type: ignore[arg-type]
        return answer(field.kind.get(policies, field.api.proto))
    if field.namespace_default is not None:
        return answer(field.namespace_default(call.broker.config))
    if field.api.unset is not None:
        return answer(field.api.unset)
    return done() if field.namespace_unset_is_204 else nothing()


async def _set(field: PolicyField, call: Call) -> web.Response:
    value = await value_of(field, call, may_be_null=field.api.never_removed)
    return await _change(call, setting(field, value, field.api.namespace, call.broker.config))


async def _remove(field: PolicyField, call: Call) -> web.Response:
    return await _change(call, field.clear)


async def _quotas(call: Call) -> web.Response:
    return answer(quota_map((await call.broker.policy_writer.namespace(call.namespace)).policies))


async def _set_quota(call: Call) -> web.Response:
    quota_type, value = quota_type_of(call), await call.json()
    return await _change(call, lambda policies: put_quota(policies, quota_type, value))


async def _remove_quota(call: Call) -> web.Response:
    quota_type = quota_type_of(call)
    return await _change(
        call,
        lambda policies: policies.ClearField(QUOTA_FIELDS[quota_type]),  # type: ignore[arg-type]
    )


async def _change(call: Call, edit: Callable[[Policies], None]) -> web.Response:
    name, broker = call.namespace, call.broker

    def edit_namespace(namespace: Namespace) -> None:
        edit(namespace.policies)
        check_quota_within_retention(namespace.policies)

    try:
        await broker.policy_writer.change_namespace(name, edit_namespace)
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error
    broker.policies.wrote(name, None)
    await broker.registry.policies_applied(APPLY_SECONDS_MAX)
    return done()


_SET_ERRORS: Final = {
    **NAMESPACE_ERRORS,
    409: "concurrent modification of the namespace",
    412: "invalid policy value; invalid name",
}


_TOO_MANY: Final = {406: "more partitions than allowed"}


def _route(method: str, name: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        object="namespaces",
        method=method,
        path=f"{NAMESPACE_PATH}/{name}",
        handler=handler,
        summary=summary,
        errors=more.pop("errors", NAMESPACE_ERRORS if method == "GET" else _SET_ERRORS),
        **more,
        operation=Operation.POLICY,
    )


def _routes_of(field: PolicyField) -> list[Route]:
    name, type_name = field.api.namespace, field.kind.type_name
    routes = [
        _route(
            "GET",
            name,
            partial(_get, field),
            f"Get {name} of a namespace.",
            answer=type_name.removesuffix("?"),
            also={204: "not set"} if field.namespace_unset_is_204 else {},
        ),
        _route(
            field.api.set_with,
            name,
            partial(_set, field),
            f"Set {name} of a namespace.{field.kept}",
            body=type_name,
            status=204,
            errors={**_SET_ERRORS, **_TOO_MANY} if field.api.proto == "auto_topic_creation" else _SET_ERRORS,
        ),
    ]
    if not field.api.never_removed:
        removed_at = field.api.removed_at or name
        routes.append(
            _route(
                "DELETE", removed_at, partial(_remove, field), f"Remove {name} of a namespace.", status=204
            )
        )
    return routes


ROUTES: Final = [
    *(route for field in FIELDS if field.api.namespace for route in _routes_of(field)),
    _route("GET", "backlogQuotaMap", _quotas, "Get the backlog quotas by type.", answer="Map<BacklogQuota>"),
    _route(
        "POST",
        "backlogQuota",
        _set_quota,
        "Set the backlog quota of one type.",
        query=QUOTA_QUERY,
        body="BacklogQuota",
        status=204,
    ),
    _route(
        "DELETE",
        "backlogQuota",
        _remove_quota,
        "Remove the backlog quota of one type.",
        query=QUOTA_QUERY,
        status=204,
    ),
]
