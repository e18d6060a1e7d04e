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
    """Manage which brokers may serve which namespaces."""


@isolation.command(name="list")
@_CLUSTER
@click.pass_obj
def list_policies(target: Target, cluster: str) -> None:
    """List all isolation policies of a cluster."""
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
@click.option("--namespaces", required=True, help="Comma-separated regular expressions for namespaces.")
@click.option("--primary", required=True, help="Comma-separated regular expressions for primary brokers.")
@click.option(
    "--secondary",
    default="",
    help="Comma-separated regular expressions for secondary brokers, used when too few primary "
    "brokers are up.",
)
@click.option(
    "--auto-failover-policy-type",
    "policy_type",
    type=click.Choice(["min_available"]),
    required=True,
    help="Failover policy: when to use secondary brokers.",
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
    help="Stored and shown, without effect: bundles are not unloaded when a policy changes.",
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
    """List the isolation policies of each broker."""
    value = ask(target, "GET", cluster_path(cluster, _POLICIES, "brokers")).value
    show(target, f"Brokers of {cluster}", value)


@isolation.command()
@_CLUSTER
@click.option("--broker", required=True, metavar="HOST:PORT", help="HTTP address of the broker.")
@click.pass_obj
def broker(target: Target, cluster: str, broker: str) -> None:
    """Show the isolation policies of one broker."""
    value = ask(target, "GET", cluster_path(cluster, _POLICIES, "brokers", broker)).value
    show(target, f"Broker {broker}", value)
