"""`magnetar admin tenants`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from magnetar.cli.admin.http_client import ask, show, tenant_path

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target


@click.group()
def tenants() -> None:
    """Tenants."""


@tenants.command(name="list")
@click.pass_obj
def list_tenants(target: Target) -> None:
    """All tenants."""
    show(target, "Tenants", ask(target, "GET", "/admin/v2/tenants").value)


@tenants.command()
@click.argument("tenant")
@click.pass_obj
def get(target: Target, tenant: str) -> None:
    """Show the admin roles and allowed clusters of a tenant."""
    show(target, f"Tenant {tenant}", ask(target, "GET", tenant_path(tenant)).value)


def _info(admin_roles: str, allowed_clusters: str) -> dict[str, list[str]]:
    def split(text: str) -> list[str]:
        return [each.strip() for each in text.split(",") if each.strip()]

    return {"adminRoles": split(admin_roles), "allowedClusters": split(allowed_clusters)}


_ROLES = click.option("--admin-roles", "-r", default="", help="Comma-separated roles.")


def _clusters(target: Target, given: str) -> str:
    """Return the named clusters, or all clusters."""
    return given or ",".join(ask(target, "GET", "/admin/v2/clusters").value)


_CLUSTERS = click.option(
    "--allowed-clusters", "-c", default="", help="Comma-separated clusters; default: all."
)


@tenants.command()
@click.argument("tenant")
@_ROLES
@_CLUSTERS
@click.pass_obj
def create(target: Target, tenant: str, admin_roles: str, allowed_clusters: str) -> None:
    """Make a tenant."""
    ask(target, "PUT", tenant_path(tenant), _info(admin_roles, _clusters(target, allowed_clusters)))


@tenants.command()
@click.argument("tenant")
@_ROLES
@_CLUSTERS
@click.pass_obj
def update(target: Target, tenant: str, admin_roles: str, allowed_clusters: str) -> None:
    """Change a tenant."""
    ask(target, "POST", tenant_path(tenant), _info(admin_roles, _clusters(target, allowed_clusters)))


@tenants.command()
@click.argument("tenant")
@click.option("--force", "-f", is_flag=True, help="Delete its namespaces as well.")
@click.pass_obj
def delete(target: Target, tenant: str, force: bool) -> None:
    """Delete a tenant that has no namespaces."""
    ask(target, "DELETE", tenant_path(tenant), query={"force": force or None})
