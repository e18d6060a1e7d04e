"""Clusters, anti-affinity and bookie groups of namespaces, for `magnetar admin namespaces`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, show
from magnetar.cli.option_values import comma_list

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")
_CLUSTERS = click.option("--clusters", "-c", required=True, help="Comma-separated clusters.")


def _get(target: Target, namespace: str, what: str, title: str) -> None:
    show(target, f"{title} of {namespace}", ask(target, "GET", f"{namespace_path(namespace)}/{what}").value)


@click.command(name="get-clusters")
@_NAMESPACE
@click.pass_obj
def get_clusters(target: Target, namespace: str) -> None:
    """Show the replication clusters of a namespace."""
    _get(target, namespace, "replication", "Clusters")


@click.command(name="set-clusters")
@_NAMESPACE
@_CLUSTERS
@click.pass_obj
def set_clusters(target: Target, namespace: str, clusters: str) -> None:
    """Set the replication clusters of a namespace."""
    ask(target, "POST", f"{namespace_path(namespace)}/replication", comma_list(clusters))


@click.command(name="get-allowed-clusters")
@_NAMESPACE
@click.pass_obj
def get_allowed_clusters(target: Target, namespace: str) -> None:
    """Show the allowed clusters of a namespace."""
    _get(target, namespace, "allowedClusters", "Allowed clusters")


@click.command(name="set-allowed-clusters")
@_NAMESPACE
@_CLUSTERS
@click.pass_obj
def set_allowed_clusters(target: Target, namespace: str, clusters: str) -> None:
    """Set the allowed clusters of a namespace."""
    ask(target, "POST", f"{namespace_path(namespace)}/allowedClusters", comma_list(clusters))


@click.command(name="update-migration-state")
@_NAMESPACE
@click.option("--migrated", "-mig", is_flag=True, help="Redirect clients to the migration target now.")
@click.pass_obj
def update_migration_state(target: Target, namespace: str, migrated: bool) -> None:
    """Migrate a namespace's clients to this cluster's migration target."""
    ask(target, "POST", f"{namespace_path(namespace)}/migration", migrated)


@click.command(name="get-anti-affinity-group")
@_NAMESPACE
@click.pass_obj
def get_group(target: Target, namespace: str) -> None:
    """Show the anti-affinity group of a namespace."""
    _get(target, namespace, "antiAffinity", "Anti-affinity group")


@click.command(name="set-anti-affinity-group")
@_NAMESPACE
@click.option("--group", "-g", required=True, help="Anti-affinity group.")
@click.pass_obj
def set_group(target: Target, namespace: str, group: str) -> None:
    """Set the anti-affinity group of a namespace."""
    ask(target, "POST", f"{namespace_path(namespace)}/antiAffinity", group)


@click.command(name="delete-anti-affinity-group")
@_NAMESPACE
@click.pass_obj
def delete_group(target: Target, namespace: str) -> None:
    """Remove a namespace from its anti-affinity group."""
    ask(target, "DELETE", f"{namespace_path(namespace)}/antiAffinity")


@click.command(name="get-anti-affinity-namespaces")
@click.option("--tenant", "-p", required=True, help="Tenant name.")
@click.option("--cluster", "-c", required=True, help="Cluster name.")
@click.option("--group", "-g", required=True, help="Anti-affinity group.")
@click.pass_obj
def get_namespaces_of_group(target: Target, tenant: str, cluster: str, group: str) -> None:
    """List the namespaces of a tenant in an anti-affinity group."""
    path = f"/admin/v2/namespaces/{quote(cluster, safe='')}/antiAffinity/{quote(group, safe='')}"
    show(target, f"Namespaces of {group}", ask(target, "GET", path, query={"tenant": tenant}).value)


@click.command(name="get-bookie-affinity-group")
@_NAMESPACE
@click.pass_obj
def get_bookies(target: Target, namespace: str) -> None:
    """Show the bookie affinity groups of a namespace."""
    _get(target, namespace, "persistence/bookieAffinity", "Bookie affinity")


@click.command(name="set-bookie-affinity-group")
@_NAMESPACE
@click.option("--primary-group", "-pg", required=True, help="Primary bookie group.")
@click.option(
    "--secondary-group",
    "-sg",
    default="",
    help="Secondary bookie group, used when the primary group is too small.",
)
@click.pass_obj
def set_bookies(target: Target, namespace: str, primary_group: str, secondary_group: str) -> None:
    """Set the bookie affinity groups of a namespace."""
    body = {"bookkeeperAffinityGroupPrimary": primary_group}
    if secondary_group:
        body["bookkeeperAffinityGroupSecondary"] = secondary_group
    ask(target, "POST", f"{namespace_path(namespace)}/persistence/bookieAffinity", body)


@click.command(name="delete-bookie-affinity-group")
@_NAMESPACE
@click.pass_obj
def delete_bookies(target: Target, namespace: str) -> None:
    """Remove the bookie affinity groups of a namespace."""
    ask(target, "DELETE", f"{namespace_path(namespace)}/persistence/bookieAffinity")


COMMANDS: tuple[click.Command, ...] = (
    get_clusters,
    set_clusters,
    get_allowed_clusters,
    set_allowed_clusters,
    update_migration_state,
    get_group,
    set_group,
    delete_group,
    get_namespaces_of_group,
    get_bookies,
    set_bookies,
    delete_bookies,
)


def add_placement(group: click.Group) -> None:
    """Add these commands to a group."""
    for command in COMMANDS:
        group.add_command(command)
