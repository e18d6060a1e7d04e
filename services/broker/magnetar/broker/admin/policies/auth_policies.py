"""Permissions of roles and subscriptions in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from magnetar.broker.admin.policies.policy_json import BadPolicy, json_object
from magnetar.common.metadata.values import Policies

ACTIONS: Final = ("consume", "functions", "packages", "produce", "sinks", "sources")
ROLE_CHARS_MAX: Final = 1_024


def actions_of(value: Any) -> list[str]:
    """Validates the actions granted to a role. Raises BadPolicy."""
    if not isinstance(value, list):
        raise BadPolicy(f"the actions must be a list of {', '.join(ACTIONS)}")
    for each in value:
        if each not in ACTIONS:
            raise BadPolicy(f"{each!r} is not one of the actions {', '.join(ACTIONS)}")
    return [action for action in ACTIONS if action in value]


def roles_of(value: Any) -> list[str]:
    """Validates the roles permitted to use a subscription. Raises BadPolicy."""
    if not isinstance(value, list):
        raise BadPolicy("the roles must be a list")
    return sorted({role_of(each) for each in value})


def role_of(value: Any) -> str:
    """Validates the name of a role. Raises BadPolicy (412)."""
    if not isinstance(value, str) or not value.strip() or len(value) > ROLE_CHARS_MAX:
        raise BadPolicy(
            f"a role must be a string of 1 to {ROLE_CHARS_MAX} characters, not {value!r:.80}", 412
        )
    return value


def permissions_json(policies: Policies) -> dict[str, list[str]]:
    """Returns the actions granted to each role at this level."""
    return {role: list(actions.names) for role, actions in sorted(policies.permissions.items())}


def subscription_roles_json(policies: Policies) -> dict[str, list[str]]:
    """Returns the roles permitted to use each subscription; other subscriptions are open to all consumers."""
    return {name: list(roles.names) for name, roles in sorted(policies.subscription_roles.items())}


def auth_policies_json(
    policies: Policies, of_topics: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, Any]:
    """Returns all permissions within a namespace."""
    return {
        "namespace_auth": permissions_json(policies),
        "destination_auth": dict(of_topics),
        "subscription_auth_roles": subscription_roles_json(policies),
    }


def put_auth_policies(policies: Policies, value: Any) -> None:
    """Stores the permissions of a new namespace. Raises BadPolicy, also for permissions on topics."""
    given = json_object("auth_policies", value)
    if given.get("destination_auth"):
        raise BadPolicy("destination_auth: grant permissions on a topic once the topic is there", 412)
    for role, actions in json_object("namespace_auth", given.get("namespace_auth") or {}).items():
        policies.permissions[role_of(role)].names[:] = actions_of(actions)
    subscriptions = json_object("subscription_auth_roles", given.get("subscription_auth_roles") or {})
    for name, roles in subscriptions.items():
        if roles:
            policies.subscription_roles[name].names[:] = roles_of(roles)
