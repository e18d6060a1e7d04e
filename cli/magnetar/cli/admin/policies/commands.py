"""`set-...`, `get-...` and `remove-...` for every policy, generated from the admin API's policy table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.http_client import NOTHING, ask, path_of, show
from magnetar.cli.admin.policies.offload_options import OFFLOAD
from magnetar.cli.admin.policies.options import OPTIONS, Choice, number_choice
from magnetar.common.admin_types.policies import POLICIES, PolicyApi

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

QUOTA_TYPES: Final = ("destination_storage", "message_age")
_TARGET_HELP: Final = {"namespace": "tenant/namespace", "topic": "persistent://tenant/namespace/topic"}


def add_policies(group: click.Group, level: str) -> None:
    """Add the commands for every policy of `level`, 'namespace' or 'topic', to a group."""
    for policy in POLICIES.values():
        if getattr(policy, level):
            _add_policy(group, policy, level)
    _add_quotas(group, level)


def _add_policy(group: click.Group, policy: PolicyApi, level: str) -> None:
    rest_name = getattr(policy, level)
    verb = (policy.topic_verb if level == "topic" else "") or policy.verb
    choice = OFFLOAD if policy.proto == "offload" else OPTIONS.get(policy.proto) or number_choice(policy.verb)
    method = policy.set_with if level == "namespace" else policy.topic_set_with

    def set_it(target: Target, name: str, **given: Any) -> None:
        value = choice.body(given)
        path = f"{path_of(level, name)}/{rest_name}"
        if level == "topic" and policy.value_in_query:
            ask(target, method, path, query={rest_name: value})
        else:
            ask(target, method, path, value)

    def get_it(target: Target, name: str, applied: bool = False) -> None:
        query = {"applied": True} if applied else None
        value = ask(target, "GET", f"{path_of(level, name)}/{rest_name}", query=query).value
        show(target, f"{rest_name} of {name}", value, asked=True)

    def remove_it(target: Target, name: str) -> None:
        path = path_of(level, name)
        if level == "namespace" and policy.never_removed:
            # Shown for a policy that is not set: null means false for some policies, not the default.
            ask(target, method, f"{path}/{rest_name}", policy.unset)
        else:
            removed_at = (policy.removed_at if level == "namespace" else "") or rest_name
            ask(target, "DELETE", f"{path}/{removed_at}")

    _command(group, level, f"set-{verb}", set_it, f"Set {verb}.", choice)
    _command(group, level, f"get-{verb}", get_it, f"Show {verb}.", _applied(level))
    _command(group, level, f"remove-{verb}", remove_it, f"Remove {verb}.", None)


def _add_quotas(group: click.Group, level: str) -> None:
    kind = click.Option(
        ["--type", "-t", "quota_type"],
        type=click.Choice(QUOTA_TYPES),
        default=QUOTA_TYPES[0],
        show_default=True,
        help="Quota type: size in bytes, or age of the oldest message.",
    )

    def set_it(target: Target, name: str, quota_type: str, **given: Any) -> None:
        path = f"{path_of(level, name)}/backlogQuota"
        ask(target, "POST", path, OPTIONS["quota"].body(given), {"backlogQuotaType": quota_type})

    def get_it(target: Target, name: str, applied: bool = False) -> None:
        query = {"applied": True} if applied else None
        value = ask(target, "GET", f"{path_of(level, name)}/backlogQuotaMap", query=query).value
        show(target, f"Backlog quotas of {name}", value)

    def remove_it(target: Target, name: str, quota_type: str) -> None:
        path = f"{path_of(level, name)}/backlogQuota"
        ask(target, "DELETE", path, NOTHING, {"backlogQuotaType": quota_type})

    with_kind = Choice((*OPTIONS["quota"].options, kind), OPTIONS["quota"].body)
    _command(group, level, "set-backlog-quota", set_it, "Set a backlog quota.", with_kind)
    _command(group, level, "get-backlog-quotas", get_it, "Show the backlog quotas.", _applied(level))
    only_kind = Choice((kind,), lambda given: given)
    _command(group, level, "remove-backlog-quota", remove_it, "Remove a backlog quota.", only_kind)


def _applied(level: str) -> Choice | None:
    if level == "namespace":
        return None
    option = click.Option(
        ["--applied", "-ap"],
        is_flag=True,
        help="Show the effective value: the topic's, or the inherited one.",
    )
    return Choice((option,), lambda given: given)


def _command(
    group: click.Group, level: str, verb: str, act: Callable[..., None], help_text: str, choice: Choice | None
) -> None:
    argument = click.Argument(["name"], metavar=_TARGET_HELP[level])
    params = [argument, *(choice.options if choice else ())]
    group.add_command(click.Command(verb, callback=click.pass_obj(act), params=params, help=help_text))
