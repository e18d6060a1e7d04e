"""Routes for permissions of namespaces, topics and subscriptions.

With authorizationEnabled they decide what roles may do (magnetar.common.security.authorization); otherwise
they are stored and returned. A grant replaces the actions that the role had. Permissions of a partitioned
topic apply to its partitions, also to those that are added later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.authorization import authorize_target
from magnetar.broker.admin.edge.call import Call, answer, done
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.objects.namespaces import NAMESPACE_ERRORS, NAMESPACE_PATH
from magnetar.broker.admin.objects.topics import require_namespace, require_topic, topic_routes
from magnetar.broker.admin.policies.auth_policies import (
    actions_of,
    permissions_json,
    role_of,
    roles_of,
    subscription_roles_json,
)
from magnetar.broker.admin.policies.policy_json import BadPolicy
from magnetar.common.metadata.values import Namespace, Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.audit import audit
from magnetar.common.security.authorization.authorizer import Target
from magnetar.common.security.authorization.operations import Operation

OPTIONS_MAX: Final = 1_000
"""Maximum topics in one call."""


# -- of a namespace


async def _get(call: Call) -> web.Response:
    return answer(permissions_json((await call.broker.policy_writer.namespace(call.namespace)).policies))


async def _grant(call: Call) -> web.Response:
    role, actions = _role(call), _checked(actions_of, await call.json())

    def edit(policies: Policies) -> None:
        policies.permissions[role].names[:] = actions

    return await _change(call, edit)


async def _revoke(call: Call) -> web.Response:
    role = _role(call)
    return await _change(call, lambda policies: policies.permissions.pop(role, None))


async def _of_subscriptions(call: Call) -> web.Response:
    namespace = await call.broker.policy_writer.namespace(call.namespace)
    return answer(subscription_roles_json(namespace.policies))


async def _grant_subscription(call: Call) -> web.Response:
    name, roles = call.subscription, _checked(roles_of, await call.json())

    def edit(policies: Policies) -> None:
        if roles:
            policies.subscription_roles[name].names[:] = roles
        else:
            policies.subscription_roles.pop(name, None)

    return await _change(call, edit)


async def _revoke_subscription(call: Call) -> web.Response:
    name, role = call.subscription, _role(call)

    def edit(policies: Policies) -> None:
        if name not in policies.subscription_roles:
            return
        kept = [each for each in policies.subscription_roles[name].names if each != role]
        if kept:
            policies.subscription_roles[name].names[:] = kept
        else:
            policies.subscription_roles.pop(name, None)

    return await _change(call, edit)


async def _change(call: Call, edit: Callable[[Policies], Any]) -> web.Response:
    recorded = _Recorded(edit)

    def edit_namespace(namespace: Namespace) -> None:
        recorded(namespace.policies)

    await call.broker.policy_writer.change_namespace(call.namespace, edit_namespace)
    recorded.tell(call, str(call.namespace))
    return done()


class _Recorded:
    """An edit of policies that remembers the permissions before and after it, for the audit log."""

    def __init__(self, edit: Callable[[Policies], Any]) -> None:
        self._edit = edit
        self._old: dict[str, Any] = {}
        self._new: dict[str, Any] = {}

    def __call__(self, policies: Policies) -> None:
        self._old = _auth_of(policies)
        self._edit(policies)
        self._new = _auth_of(policies)

    def tell(self, call: Call, resource: str) -> None:
        """Write what differs to the audit log, once it is stored."""
        old, new = self._old, self._new
        roles = sorted(role for role in {*old, *new} if old.get(role) != new.get(role))
        audit(
            "permissions changed",
            principal=call.principal,
            resource=resource,
            action="grant",
            outcome="done",
            old={role: old[role] for role in roles if role in old},
            new={role: new[role] for role in roles if role in new},
        )


def _auth_of(policies: Policies) -> dict[str, Any]:
    subscriptions = subscription_roles_json(policies)
    return {
        **permissions_json(policies),
        **{f"subscription {name}": subscriptions[name] for name in subscriptions},
    }


# -- of topics


async def _get_of_topic(call: Call) -> web.Response:
    """Returns the permissions in effect: the namespace's and the topic's combined."""
    topic, writer = call.topic, call.broker.policy_writer
    await _require(call, topic)
    if 0 <= topic.partition_index < await call.broker.partitions(topic.base):
        topic = topic.base
    found = permissions_json((await writer.namespace(topic.namespace)).policies)
    for role, actions in permissions_json(await writer.topic(topic)).items():
        found[role] = sorted({*found.get(role, ()), *actions})
    return answer(found)


async def _grant_on_topic(call: Call) -> web.Response:
    role, actions = _role(call), _checked(actions_of, await call.json())
    await _may_have_its_own(call, call.topic)
    await _grant_to(call, call.topic, role, actions)
    return done()


async def _revoke_on_topic(call: Call) -> web.Response:
    role = _role(call)
    await _may_have_its_own(call, call.topic)
    await _revoke_from(call, call.topic, role)
    return done()


async def _grant_on_topics(call: Call) -> web.Response:
    options = [
        (topic, role, _checked(actions_of, option.get("actions")))
        for topic, role, option in await _options(call)
    ]
    for topic, role, actions in options:
        await _grant_to(call, topic, role, actions)
    return done()


async def _revoke_on_topics(call: Call) -> web.Response:
    for topic, role, _ in await _options(call):
        await _revoke_from(call, topic, role)
    return done()


async def _options(call: Call) -> list[tuple[TopicName, str, dict[str, Any]]]:
    """Parses a call about several topics; all must exist, or nothing is changed."""
    given = await call.json()
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Refused(400, "the body must be a list of objects with topic, role and actions")
    if len(given) > OPTIONS_MAX:
        raise Refused(412, f"at most {OPTIONS_MAX} permissions in one call, not {len(given)}")
    found = []
    for option in given:
        name = option.get("topic")
        if not isinstance(name, str):
            raise Refused(400, "each permission must name its topic")
        found.append((TopicName.parse(name), _checked(role_of, option.get("role")), option))
    for tenant in sorted({topic.tenant for topic, _, _ in found}):
        await authorize_target(call, Operation.TENANT_ADMIN, Target(tenant=tenant))
    for topic in {topic.full: topic for topic, _, _ in found}.values():
        await _may_have_its_own(call, topic)
    return found


async def _require(call: Call, topic: TopicName) -> None:
    await require_namespace(call.broker, topic.namespace, "Namespace not found")
    await require_topic(call.broker, topic, may_be_created=False)


async def _may_have_its_own(call: Call, topic: TopicName) -> None:
    await _require(call, topic)
    if 0 <= topic.partition_index < await call.broker.partitions(topic.base):
        raise Refused(412, f"{topic} is a partition: permissions are those of {topic.base}")


async def _grant_to(call: Call, topic: TopicName, role: str, actions: list[str]) -> None:
    def edit(policies: Policies) -> None:
        policies.permissions[role].names[:] = actions

    recorded = _Recorded(edit)
    await call.broker.policy_writer.change_topic(topic, recorded)
    recorded.tell(call, topic.full)


async def _revoke_from(call: Call, topic: TopicName, role: str) -> None:
    def edit(policies: Policies) -> None:
        policies.permissions.pop(role, None)

    recorded = _Recorded(edit)
    await call.broker.policy_writer.change_topic(topic, recorded)
    recorded.tell(call, topic.full)


def _role(call: Call) -> str:
    return str(_checked(role_of, call.names["role"]))


def _checked(read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except BadPolicy as error:
        raise Refused(error.status, error.reason) from error


_PATH: Final = f"{NAMESPACE_PATH}/permissions"
_CHANGED: Final = {
    405: "the configuration of the namespace would be too large",
    409: "Concurrent modification",
    412: "invalid role; invalid name",
}
_ON_TOPICS: Final = {
    404: "Namespace not found; Topic not found",
    409: "concurrent modification of the topic's policies",
    412: "partitions have no permissions of their own; invalid role; invalid name",
}


def _route(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    conflict = {} if method == "GET" else _CHANGED
    return Route(
        object="namespaces",
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        errors={**NAMESPACE_ERRORS, **conflict, **more.pop("errors", {})},
        **more,
    )


ROUTES: Final = [
    _route(
        "POST",
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        _grant_on_topics,
        "Grant permissions on several topics.",
        body="List<GrantTopicPermissionOptions>",
        names_in_body=True,
        status=204,
        errors=_ON_TOPICS,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "POST",
        "/admin/v2/namespaces/revokePermissionsOnTopics",
        _revoke_on_topics,
        "Revoke permissions on several topics.",
        body="List<RevokeTopicPermissionOptions>",
        names_in_body=True,
        status=204,
        errors=_ON_TOPICS,
        operation=Operation.TENANT_ADMIN,
    ),
    _route(
        "GET",
        _PATH,
        _get,
        "Get the permissions of a namespace by role.",
        answer="Map<List<AuthAction>>",
        operation=Operation.NAMESPACE_ADMIN,
    ),
    _route(
        "GET",
        f"{_PATH}/subscription",
        _of_subscriptions,
        "Get the roles permitted to use each subscription.",
        answer="Map<List<String>>",
        operation=Operation.NAMESPACE_ADMIN,
    ),
    _route(
        "POST",
        f"{_PATH}/subscription/{{subscription}}",
        _grant_subscription,
        "Grant roles the use of a subscription.",
        body="Set<String>",
        status=204,
        operation=Operation.NAMESPACE_ADMIN,
    ),
    _route(
        "POST",
        f"{_PATH}/{{role}}",
        _grant,
        "Grant a role permissions on a namespace.",
        body="Set<AuthAction>",
        status=204,
        operation=Operation.NAMESPACE_ADMIN,
    ),
    _route(
        "DELETE",
        f"{_PATH}/{{role}}",
        _revoke,
        "Revoke all permissions of a role on a namespace.",
        status=204,
        operation=Operation.NAMESPACE_ADMIN,
    ),
    _route(
        "DELETE",
        f"{_PATH}/{{subscription}}/{{role}}",
        _revoke_subscription,
        "Revoke a role's permission to use a subscription.",
        status=204,
        operation=Operation.NAMESPACE_ADMIN,
    ),
    *topic_routes(
        "GET",
        "permissions",
        _get_of_topic,
        "Get the permissions on a topic by role, including those of its namespace.",
        answer="Map<List<AuthAction>>",
        tenant_first=True,
        operation=Operation.TENANT_ADMIN,
    ),
    *topic_routes(
        "POST",
        "permissions/{role}",
        _grant_on_topic,
        "Grant a role permissions on a topic.",
        body="Set<AuthAction>",
        status=204,
        tenant_first=True,
        errors=_ON_TOPICS,
        operation=Operation.TENANT_ADMIN,
    ),
    *topic_routes(
        "DELETE",
        "permissions/{role}",
        _revoke_on_topic,
        "Revoke all permissions of a role on a topic.",
        status=204,
        tenant_first=True,
        errors=_ON_TOPICS,
        operation=Operation.TENANT_ADMIN,
    ),
]
