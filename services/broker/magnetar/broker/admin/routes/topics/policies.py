"""Routes of topic policies, from the table of fields; those of a partitioned topic apply to each partition.
`applied=true` returns the effective value: the topic's, the namespace's or the broker's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, nothing
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.topics import (
    PATHS,
    TOPIC_ERRORS,
    TOPIC_PATH,
    require_namespace,
    topic_with_policies,
)
from magnetar.broker.admin.policies.policy_fields import FIELDS, PolicyField, rate_json
from magnetar.broker.admin.policies.policy_json import RATE, BadPolicy
from magnetar.broker.admin.policies.policy_kinds import (
    QUOTA_FIELDS,
    check_quota_of_topic,
    put_quota,
    quota_json,
    quota_map,
)
from magnetar.broker.admin.policies.policy_requests import (
    APPLY_SECONDS_MAX,
    QUOTA_QUERY,
    quota_type_of,
    setting,
    value_of,
)
from magnetar.broker.policies.effective_policies import EffectivePolicies, resolve
from magnetar.common.metadata.values import Policies
from magnetar.common.security.authorization.operations import Operation


async def _levels(call: Call) -> tuple[Policies, Policies]:
    """Returns the topic's own policies and its namespace's."""
    topic = await topic_with_policies(call)
    writer = call.broker.policy_writer
    return await writer.topic(topic), (await writer.namespace(topic.namespace)).policies


async def _effective(call: Call) -> EffectivePolicies:
    topic, namespace = await _levels(call)
    return resolve(call.broker.config, namespace, topic)


async def _get(field: PolicyField, call: Call) -> web.Response:
    applied = call.flag("applied") and not field.unset_is_204
    if applied:
        if field.applied is not None:
            return answer(field.applied(await _effective(call)))
        levels = await _levels(call)
    else:
        levels = (await _levels(call))[:1]  # type: ignore[assignment]
    for level in levels:
        if level.HasField(field.api.proto):  # type: ignore[arg-type]
            return answer(field.kind.get(level, field.api.proto))
    if applied and field.configured is not None:
        return answer(field.configured(call.broker.ledgers.config))
    unset = field.otherwise if applied else field.topic_unset
    if unset is not None:
        return answer(unset)
    return done() if field.unset_is_204 else nothing()


async def _set(field: PolicyField, call: Call) -> web.Response:
    if field.api.value_in_query and field.api.topic in call.request.query:
        # A body without a value removes the policy, as in Pulsar.
        value: Any = call.query_number(field.api.topic, 0) if call.request.query[field.api.topic] else None
    else:
        value = await value_of(field, call, may_be_null=True)
    return await _change(call, setting(field, value, field.api.topic, call.broker.config))


async def _remove(field: PolicyField, call: Call) -> web.Response:
    return await _change(call, field.clear)


async def _remove_all(call: Call) -> web.Response:
    """Removes all policies except permissions, which are not policies here."""

    def edit(policies: Policies) -> None:
        kept = Policies(permissions=policies.permissions)
        policies.CopyFrom(kept)

    return await _change(call, edit)


async def _quotas(call: Call) -> web.Response:
    if not call.flag("applied"):
        return answer(quota_map((await _levels(call))[0]))
    policies = await _effective(call)
    size, time = policies.size_quota, policies.time_quota
    return answer(
        {
            "destination_storage": quota_json(size.limit, -1, size.policy),
            "message_age": quota_json(-1, time.limit, time.policy),
        }
    )


async def _set_quota(call: Call) -> web.Response:
    quota_type, value = quota_type_of(call), await call.json()
    return await _change(call, lambda policies: put_quota(policies, quota_type, value))


async def _remove_quota(call: Call) -> web.Response:
    field = QUOTA_FIELDS[quota_type_of(call)]
    return await _change(call, lambda policies: policies.ClearField(field))  # type: ignore[arg-type]


# -- the dispatch rate of one subscription


async def _subscription_rate(call: Call) -> web.Response:
    name = call.subscription
    if call.flag("applied"):
        return answer(rate_json((await _effective(call)).dispatch_rate_of(name)))
    own = (await _levels(call))[0]
    if name not in own.dispatch_rate_of_subscription:
        return nothing()
    return answer(RATE.get(_as_rate(own.dispatch_rate_of_subscription[name]), "dispatch_rate"))


async def _set_subscription_rate(call: Call) -> web.Response:
    name, value = call.subscription, await call.json()

    def edit(policies: Policies) -> None:
        read = Policies()
        RATE.put(read, "dispatch_rate", value, "dispatchRate")
        policies.dispatch_rate_of_subscription[name].CopyFrom(read.dispatch_rate)

    return await _change(call, edit)


async def _remove_subscription_rate(call: Call) -> web.Response:
    name = call.subscription

    def edit(policies: Policies) -> None:
        policies.dispatch_rate_of_subscription.pop(name, None)

    return await _change(call, edit)


def _as_rate(rate: Policies.Rate) -> Policies:
    return Policies(dispatch_rate=rate)


async def _change(call: Call, edit: Callable[[Policies], None]) -> web.Response:
    topic, broker = await topic_with_policies(call), call.broker

    namespace = (await broker.policy_writer.namespace(topic.namespace)).policies

    def checked(policies: Policies) -> None:
        before = Policies()
        before.CopyFrom(policies)
        edit(policies)
        check_quota_of_topic(before, policies, namespace)

    try:
        await broker.policy_writer.change_topic(topic, checked)
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error
    broker.policies.wrote(None, topic)
    await broker.registry.policies_applied(APPLY_SECONDS_MAX)
    return done()


_SET_ERRORS: Final = {
    **TOPIC_ERRORS,
    409: "concurrent modification of the topic's policies",
    412: "invalid policy value; partitions have no policies of their own",
}
_APPLIED: Final = ("applied:boolean=false",)


def _routes(method: str, name: str, handler: Any, summary: str, **more: Any) -> list[Route]:
    return [
        Route(
            object=domain,
            method=method,
            path=f"{path}/{name}",
            handler=handler,
            summary=summary,
            errors=TOPIC_ERRORS if method == "GET" else _SET_ERRORS,
            **more,
        )
        for domain, path in PATHS
    ]


def _routes_of(field: PolicyField) -> list[Route]:
    name, type_name = field.api.topic, field.kind.type_name
    in_query = (
        {"query": (f"{name}:{type_name}",)}
        if field.api.value_in_query
        else {"body": f"{type_name}?" if field.null_unsets_topic else type_name}
    )
    # As in Pulsar, which lets those administer the largest message that administer the tenant.
    operation = Operation.TENANT_ADMIN if name == "maxMessageSize" else Operation.POLICY
    reads = _routes(
        "GET",
        name,
        partial(_get, field),
        f"Get {name} of a topic.",
        query=_APPLIED,
        answer=type_name.removesuffix("?"),
        tenant_first=field.tenant_first,
        operation=operation,
        also={204: "not set"} if field.unset_is_204 else {},
    )
    return [
        *reads,
        *_routes(
            field.api.topic_set_with,
            name,
            partial(_set, field),
            f"Set {name} of a topic.{field.kept}",
            status=204,
            tenant_first=field.tenant_first,
            operation=operation,
            **in_query,
        ),
        *_routes(
            "DELETE",
            name,
            partial(_remove, field),
            f"Remove {name} of a topic.",
            status=204,
            tenant_first=field.tenant_first,
            operation=operation,
        ),
    ]


_RATE_OF: Final = "{subscription}/dispatchRate"


async def _explain(call: Call) -> web.Response:
    """Shows the policies of a partition as those of its topic, which has them."""
    await require_namespace(call.broker, call.topic.namespace, "Namespace not found")
    origins = await call.broker.policies.origins_of(call.topic.base)
    shown = [
        {
            "name": each.name,
            "level": each.level,
            "value": each.value,
            "withoutTopic": each.without_topic,
            "withoutNamespace": each.without_namespace,
        }
        for each in origins
    ]
    return answer({"topic": call.topic.full, "policies": shown})


ROUTES: Final = [
    Route(
        object="topics",
        method="GET",
        path=f"/admin/magnetar/v1/{{domain}}{TOPIC_PATH}/policies/explain",
        handler=_explain,
        summary="Explain each policy in effect for a topic: its value, and the level that it comes from.",
        answer="PolicyExplanation",
        errors=TOPIC_ERRORS,
        operation=Operation.POLICY,
    ),
    *(route for field in FIELDS if field.api.topic for route in _routes_of(field)),
    *_routes(
        "DELETE",
        "policies",
        _remove_all,
        "Remove all policies of a topic.",
        status=204,
        operation=Operation.POLICY,
    ),
    *_routes(
        "GET",
        "backlogQuotaMap",
        _quotas,
        "Get the backlog quotas of a topic.",
        query=_APPLIED,
        answer="Map",
        operation=Operation.POLICY,
    ),
    *_routes(
        "POST",
        "backlogQuota",
        _set_quota,
        "Set the backlog quota of one type.",
        query=QUOTA_QUERY,
        body="BacklogQuota",
        status=204,
        operation=Operation.POLICY,
    ),
    *_routes(
        "DELETE",
        "backlogQuota",
        _remove_quota,
        "Remove the backlog quota of one type.",
        query=QUOTA_QUERY,
        status=204,
        operation=Operation.POLICY,
    ),
    *_routes(
        "GET",
        _RATE_OF,
        _subscription_rate,
        "Get the dispatch rate of a subscription.",
        query=_APPLIED,
        answer="DispatchRate",
        operation=Operation.POLICY,
    ),
    *_routes(
        "POST",
        _RATE_OF,
        _set_subscription_rate,
        "Set the dispatch rate of a subscription.",
        body="DispatchRate",
        status=204,
        operation=Operation.POLICY,
    ),
    *_routes(
        "DELETE",
        _RATE_OF,
        _remove_subscription_rate,
        "Remove the dispatch rate of a subscription.",
        status=204,
        operation=Operation.POLICY,
    ),
]
