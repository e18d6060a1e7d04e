"""Routes of namespace isolation policies, which restrict the brokers of a namespace.

The routes store and return the policies; the leader applies them when it assigns a bundle. Owned bundles stay
with their owner until they are unloaded: `unload_scope` is only stored and returned. In a standalone the
policies have no effect.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call, answer, done, names, text_map
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.brokers import active_brokers
from magnetar.broker.admin.routes.clusters.clusters import change_cluster, cluster_of, cluster_route
from magnetar.broker.topics.watch.topic_pattern import linear_pattern
from magnetar.common.errors import NotAllowed
from magnetar.common.metadata.values import Cluster

PATTERNS_MAX: Final = 100
"""Maximum regular expressions of one policy."""

PATTERN_CHARS_MAX: Final = 512

POLICIES_MAX: Final = 100
"""Maximum policies of one cluster: a request about brokers matches all of them."""

_SCOPES: Final = ("all_matching", "none", "changed")
_POLICY_TYPE: Final = "min_available"
_PARAMETERS: Final = ("min_limit", "usage_threshold")


def _read(value: Any) -> Cluster.IsolationPolicy:
    """Parses an isolation policy. Raises Refused (400)."""
    if not isinstance(value, dict):
        raise Refused(400, "a namespace isolation policy must be an object")
    policy = Cluster.IsolationPolicy(
        namespaces=names(value.get("namespaces"), "namespaces"),
        primary=names(value.get("primary"), "primary"),
        secondary=names(value.get("secondary"), "secondary"),
    )
    if not (policy.namespaces and policy.primary):
        raise Refused(400, "namespaces and primary must each have at least one regular expression")
    failover = value.get("auto_failover_policy")
    if not isinstance(failover, dict) or failover.get("policy_type") != _POLICY_TYPE:
        raise Refused(400, f"auto_failover_policy must be an object with the policy_type {_POLICY_TYPE}")
    policy.parameters.update(text_map(failover.get("parameters") or {}))
    for parameter in _PARAMETERS:
        text = policy.parameters.get(parameter, "")
        if not (text.isascii() and text.isdigit()):
            raise Refused(400, f"the parameter {parameter} of {_POLICY_TYPE} must be a whole number")
    scope = value.get("unload_scope")
    if scope is not None and scope not in _SCOPES:
        raise Refused(400, f"invalid unload_scope {scope!r}: use one of {', '.join(_SCOPES)}")
    policy.unload_scope = scope or ""
    patterns = [*policy.namespaces, *policy.primary, *policy.secondary]
    if len(patterns) > PATTERNS_MAX or max(map(len, patterns)) > PATTERN_CHARS_MAX:
        raise Refused(
            400,
            f"a policy has at most {PATTERNS_MAX} regular expressions of {PATTERN_CHARS_MAX} characters",
        )
    for pattern in patterns:
        try:
            linear_pattern(pattern, repr(pattern))
        except NotAllowed as error:
            raise Refused(400, str(error)) from error
    return policy


def _json(policy: Cluster.IsolationPolicy) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "namespaces": list(policy.namespaces),
        "primary": list(policy.primary),
        "secondary": list(policy.secondary),
        "auto_failover_policy": {"parameters": dict(policy.parameters), "policy_type": _POLICY_TYPE},
    }
    if policy.unload_scope:
        shown["unload_scope"] = policy.unload_scope
    return shown


def _broker_json(broker: str, cluster: Cluster) -> dict[str, Any]:
    """Returns the isolation data of one broker; of several matching policies, the last one's name."""
    shown: dict[str, Any] = {"brokerName": broker, "namespaceRegex": [], "primary": False}
    for name, policy in sorted(cluster.isolation_policies.items()):
        primary = _matches(broker, policy.primary)
        if primary or _matches(broker, policy.secondary):
            shown["namespaceRegex"] += policy.namespaces
            shown |= {"policyName": name, "primary": primary}
    return shown


def _matches(broker: str, patterns: Any) -> bool:
    """Whether a pattern matches the broker's host or id, as in the leader's rules."""
    names = {broker, broker.rpartition(":")[0] or broker}
    return any(linear_pattern(each, repr(each)).fullmatch(name) for each in patterns for name in names)


async def _list(call: Call) -> web.Response:
    cluster = await cluster_of(call)
    return answer({name: _json(policy) for name, policy in sorted(cluster.isolation_policies.items())})


async def _get(call: Call) -> web.Response:
    cluster = await cluster_of(call, 412)
    name = call.names["policyName"]
    if name not in cluster.isolation_policies:
        raise _unknown(call)
    return answer(_json(cluster.isolation_policies[name]))


async def _set(call: Call) -> web.Response:
    await cluster_of(call, 412)
    policy, name = _read(await call.json()), call.names["policyName"]

    def edit(cluster: Cluster) -> None:
        policies = cluster.isolation_policies
        if name not in policies and len(policies) >= POLICIES_MAX:
            raise Refused(412, f"a cluster has at most {POLICIES_MAX} namespace isolation policies")
        policies[name].CopyFrom(policy)

    await change_cluster(call, edit, 412)
    return done()


async def _delete(call: Call) -> web.Response:
    def edit(cluster: Cluster) -> None:
        name = call.names["policyName"]
        if name not in cluster.isolation_policies:
            raise _unknown(call)
        del cluster.isolation_policies[name]

    await change_cluster(call, edit, 412)
    return done()


async def _brokers(call: Call) -> web.Response:
    cluster = await cluster_of(call, 412)
    return answer([_broker_json(broker, cluster) for broker in active_brokers(call)])


async def _broker(call: Call) -> web.Response:
    return answer(_broker_json(call.names["broker"], await cluster_of(call, 412)))


def _unknown(call: Call) -> Refused:
    name, cluster = call.names["policyName"], call.names["cluster"]
    return Refused(404, f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")


_ALL: Final = "/namespaceIsolationPolicies"
_ONE: Final = f"{_ALL}/{{policyName}}"
_ERRORS: Final = {
    404: "Namespace isolation policy doesn't exist.",
    412: "Cluster doesn't exist; too many policies",
}

ROUTES: Final = [
    cluster_route(
        "GET",
        _ALL,
        _list,
        "List the namespace isolation policies of a cluster.",
        answer="Map<NamespaceIsolationData>",
    ),
    cluster_route(
        "GET",
        f"{_ALL}/brokers",
        _brokers,
        "List the isolation policies that apply to each broker.",
        answer="Set<BrokerNamespaceIsolationData>",
        errors=_ERRORS,
    ),
    cluster_route(
        "GET",
        f"{_ALL}/brokers/{{broker}}",
        _broker,
        "Get the isolation policies that apply to a broker.",
        answer="BrokerNamespaceIsolationData",
        errors=_ERRORS,
    ),
    cluster_route(
        "GET",
        _ONE,
        _get,
        "Get a namespace isolation policy.",
        answer="NamespaceIsolationData",
        errors=_ERRORS,
    ),
    cluster_route(
        "POST",
        _ONE,
        _set,
        "Set a namespace isolation policy.",
        body="NamespaceIsolationData",
        status=204,
        errors=_ERRORS,
    ),
    cluster_route(
        "DELETE", _ONE, _delete, "Delete a namespace isolation policy.", status=204, errors=_ERRORS
    ),
]
