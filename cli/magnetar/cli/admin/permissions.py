"""Permissions, for `magnetar admin namespaces` and `magnetar admin topics`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, path_of, show
from magnetar.cli.option_values import comma_list

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")
_ROLE = click.option("--role", "-r", required=True, help="Role name.")
_SUBSCRIPTION = click.option("--subscription", "-s", required=True, help="Subscription name.")


def add_permissions(group: click.Group, level: str) -> None:
    """Add the permission commands of `level`, 'namespace' or 'topic', to a group."""
    name = click.argument(
        "name", metavar="tenant/namespace" if level == "namespace" else "persistent://tenant/namespace/topic"
    )

    @group.command(name="permissions", help="Show the permissions of each role.")
    @name
    @click.pass_obj
    def permissions(target: Target, name: str) -> None:
        show(
            target, f"Permissions of {name}", ask(target, "GET", f"{path_of(level, name)}/permissions").value
        )

    @group.command(name="grant-permission", help="Grant permissions to a role.")
    @name
    @_ROLE
    @click.option("--actions", "-a", required=True, help="Comma-separated actions: produce, consume, ...")
    @click.pass_obj
    def grant(target: Target, name: str, role: str, actions: str) -> None:
        path = f"{path_of(level, name)}/permissions/{quote(role, safe='')}"
        ask(target, "POST", path, comma_list(actions))

    @group.command(name="revoke-permission", help="Revoke the permissions of a role.")
    @name
    @_ROLE
    @click.pass_obj
    def revoke(target: Target, name: str, role: str) -> None:
        ask(target, "DELETE", f"{path_of(level, name)}/permissions/{quote(role, safe='')}")


@click.command(name="subscription-permission")
@_NAMESPACE
@click.pass_obj
def of_subscriptions(target: Target, namespace: str) -> None:
    """Show the roles that may use each subscription."""
    value = ask(target, "GET", f"{namespace_path(namespace)}/permissions/subscription").value
    show(target, f"Subscriptions of {namespace}", value)


@click.command(name="grant-subscription-permission")
@_NAMESPACE
@_SUBSCRIPTION
@click.option("--roles", "-rs", required=True, help="Comma-separated roles.")
@click.pass_obj
def grant_subscription(target: Target, namespace: str, subscription: str, roles: str) -> None:
    """Grant roles access to a subscription."""
    path = f"{namespace_path(namespace)}/permissions/subscription/{twice(subscription)}"
    ask(target, "POST", path, comma_list(roles))


@click.command(name="revoke-subscription-permission")
@_NAMESPACE
@_SUBSCRIPTION
@_ROLE
@click.pass_obj
def revoke_subscription(target: Target, namespace: str, subscription: str, role: str) -> None:
    """Revoke a role's access to a subscription."""
    path = f"{namespace_path(namespace)}/permissions/{twice(subscription)}/{quote(role, safe='')}"
    ask(target, "DELETE", path)


def twice(subscription: str) -> str:
    """Return the name of a subscription, encoded twice as the API requires."""
    return quote(quote(subscription, safe=""), safe="")


SUBSCRIPTION_COMMANDS: tuple[click.Command, ...] = (of_subscriptions, grant_subscription, revoke_subscription)
