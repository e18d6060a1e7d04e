"""`magnetar admin namespaces`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, show
from magnetar.cli.admin.namespaces.placement import add_placement
from magnetar.cli.admin.namespaces.settings import NAMESPACE_COMMANDS, add_entry_filters
from magnetar.cli.admin.permissions import SUBSCRIPTION_COMMANDS, add_permissions
from magnetar.cli.option_values import pairs

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")


@click.group()
def namespaces() -> None:
    """Namespaces."""


@namespaces.command(name="list")
@click.argument("tenant")
@click.pass_obj
def list_namespaces(target: Target, tenant: str) -> None:
    """List the namespaces of a tenant."""
    path = f"/admin/v2/namespaces/{quote(tenant, safe='')}"
    show(target, f"Namespaces of {tenant}", ask(target, "GET", path).value)


@namespaces.command()
@_NAMESPACE
@click.option("--bundles", "-b", type=int, default=0, help="Number of bundles; 0: the broker's default.")
@click.option("--clusters", "-c", default="", help="Comma-separated clusters.")
@click.pass_obj
def create(target: Target, namespace: str, bundles: int, clusters: str) -> None:
    """Make a namespace."""
    body: dict[str, object] = {"bundles": {"numBundles": bundles}} if bundles else {}
    if clusters:
        body["replication_clusters"] = [each.strip() for each in clusters.split(",")]
    ask(target, "PUT", namespace_path(namespace), body)


@namespaces.command()
@_NAMESPACE
@click.option("--force", "-f", is_flag=True, help="Delete its topics as well.")
@click.pass_obj
def delete(target: Target, namespace: str, force: bool) -> None:
    """Delete a namespace that has no topics."""
    ask(target, "DELETE", namespace_path(namespace), query={"force": force or None})


@namespaces.command()
@_NAMESPACE
@click.pass_obj
def policies(target: Target, namespace: str) -> None:
    """Show all policies of a namespace."""
    show(target, f"Policies of {namespace}", ask(target, "GET", namespace_path(namespace)).value)


@namespaces.command()
@_NAMESPACE
@click.option(
    "--mode",
    "-m",
    type=click.Choice(["PERSISTENT", "NON_PERSISTENT", "ALL"]),
    default=None,
    help="Only topics of this domain.",
)
@click.option("--include-system-topic", "-ist", "system_too", is_flag=True, help="Include system topics.")
@click.pass_obj
def topics(target: Target, namespace: str, mode: str | None, system_too: bool) -> None:
    """List the topics of a namespace."""
    query = {"mode": mode, "includeSystemTopic": system_too or None}
    value = ask(target, "GET", f"{namespace_path(namespace)}/topics", query=query).value
    show(target, f"Topics of {namespace}", value)


@namespaces.command()
@_NAMESPACE
@click.pass_obj
def bundles(target: Target, namespace: str) -> None:
    """Show the bundles of a namespace."""
    show(target, f"Bundles of {namespace}", ask(target, "GET", f"{namespace_path(namespace)}/bundles").value)


@namespaces.command(name="get-properties")
@_NAMESPACE
@click.pass_obj
def get_properties(target: Target, namespace: str) -> None:
    """All properties."""
    value = ask(target, "GET", f"{namespace_path(namespace)}/properties").value
    show(target, f"Properties of {namespace}", value)


@namespaces.command(name="set-properties")
@_NAMESPACE
@click.option(
    "--properties", "-p", multiple=True, required=True, help="Property as key=value; repeat for several."
)
@click.pass_obj
def set_properties(target: Target, namespace: str, properties: tuple[str, ...]) -> None:
    """Set properties; other properties are kept."""
    given = tuple(each for text in properties for each in text.split(","))
    ask(target, "PUT", f"{namespace_path(namespace)}/properties", pairs(given, "--properties"))


@namespaces.command(name="clear-properties")
@_NAMESPACE
@click.pass_obj
def clear_properties(target: Target, namespace: str) -> None:
    """Remove all properties."""
    ask(target, "DELETE", f"{namespace_path(namespace)}/properties")


add_placement(namespaces)
add_permissions(namespaces, "namespace")
add_entry_filters(namespaces, "namespace")
for command in (*SUBSCRIPTION_COMMANDS, *NAMESPACE_COMMANDS):
    namespaces.add_command(command)
