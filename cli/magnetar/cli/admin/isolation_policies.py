"""`magnetar admin ns-isolation-policy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.clusters import cluster_path
from magnetar.cli.admin.http_client import ask, show
from magnetar.cli.option_values import comma_list, pairs

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_POLICIES: Final = "namespaceIsolationPolicies"
_CLUSTER = click.argument("cluster", metavar="cluster-name")
_POLICY = click.argument("policy", metavar="policy-name")


@click.group()
def isolation() -> None:
    """Which brokers may serve which namespaces."""


@isolation.command(name="list")
@_CLUSTER
@click.pass_obj
def list_policies(target: Target, cluster: str) -> None:
    """All policies of a cluster."""
    show(target, f"Policies of {cluster}", ask(target, "GET", cluster_path(cluster, _POLICIES)).value)


@isolation.command()
@_CLUSTER
@_POLICY
@click.pass_obj
def get(target: Target, cluster: str, policy: str) -> None:
    """One policy."""
    show(target, f"Policy {policy}", ask(target, "GET", cluster_path(cluster, _POLICIES, policy)).value)


@isolation.command(name="set")
@_CLUSTER
@_POLICY
@click.option("--namespaces", required=True, help="Regular expressions, with commas between them.")
@click.option("--primary", required=True, help="Of the brokers that serve them, likewise.")
@click.option("--secondary", default="", help="Of those that do when too few of the others are up.")
@click.option(
    "--auto-failover-policy-type",
    "policy_type",
    type=click.Choice(["min_available"]),
    required=True,
    help="When too few are.",
)
@click.option(
    "--auto-failover-policy-params",
    "parameters",
    required=True,
    metavar="KEY=VALUE,...",
    help="min_limit=1,usage_threshold=100",
)
@click.option(
    "--unload-scope",
    type=click.Choice(["all_matching", "none", "changed"]),
    default=None,
    help="Kept and shown: bundles stay where they are until they are unloaded.",
)
@click.pass_obj
def set_policy(
    target: Target,
    cluster: str,
    policy: str,
    namespaces: str,
    primary: str,
    secondary: str,
    policy_type: str,
    parameters: str,
    unload_scope: str | None,
) -> None:
    """Set a policy."""
    given = pairs(tuple(comma_list(parameters)), "--auto-failover-policy-params")
    body: dict[str, Any] = {
        "namespaces": comma_list(namespaces),
        "primary": comma_list(primary),
        "secondary": comma_list(secondary),
        "auto_failover_policy": {"policy_type": policy_type, "parameters": given},
    }
    if unload_scope is not None:
        body["unload_scope"] = unload_scope
    ask(target, "POST", cluster_path(cluster, _POLICIES, policy), body)


@isolation.command()
@_CLUSTER
@_POLICY
@click.pass_obj
def delete(target: Target, cluster: str, policy: str) -> None:
    """Remove a policy."""
    ask(target, "DELETE", cluster_path(cluster, _POLICIES, policy))


@isolation.command()
@_CLUSTER
@click.pass_obj
def brokers(target: Target, cluster: str) -> None:
    """The isolation policies of each broker."""
    value = ask(target, "GET", cluster_path(cluster, _POLICIES, "brokers")).value
    show(target, f"Brokers of {cluster}", value)


@isolation.command()
@_CLUSTER
@click.option("--broker", required=True, metavar="HOST:PORT", help="The broker's HTTP.")
@click.pass_obj
def broker(target: Target, cluster: str, broker: str) -> None:
    """The isolation policies of one broker."""
    value = ask(target, "GET", cluster_path(cluster, _POLICIES, "brokers", broker)).value
    show(target, f"Broker {broker}", value)
