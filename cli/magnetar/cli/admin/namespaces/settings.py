"""Settings of namespaces and topics that are not in the policy table: offload limits, entry
filters, resource groups, clusters of topics, shadow topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import NOTHING, ask, namespace_path, path_of, show
from magnetar.cli.option_values import SECONDS, SIZE, comma_list

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")


@click.command(name="set-offload-threshold")
@_NAMESPACE
@click.option(
    "--size",
    "-s",
    type=SIZE,
    required=True,
    help="Bytes of a topic to keep on bookies, such as 10G; -1: no automatic offload.",
)
@click.option(
    "--time",
    "-t",
    type=SECONDS,
    default=None,
    help="Age up to which messages stay on bookies, such as 3h; -1: no automatic offload.",
)
@click.pass_obj
def set_threshold(target: Target, namespace: str, size: int, time: int | None) -> None:
    """Set the size and age beyond which ledgers are offloaded."""
    ask(target, "PUT", f"{namespace_path(namespace)}/offloadThreshold", size)
    if time is not None:
        ask(target, "PUT", f"{namespace_path(namespace)}/offloadThresholdInSeconds", time)


@click.command(name="get-offload-threshold")
@_NAMESPACE
@click.pass_obj
def get_threshold(target: Target, namespace: str) -> None:
    """Show the size and age beyond which ledgers are offloaded."""
    path = namespace_path(namespace)
    value = {
        name: ask(target, "GET", f"{path}/{name}").value
        for name in ("offloadThreshold", "offloadThresholdInSeconds")
    }
    show(target, f"Offload threshold of {namespace}", value)


@click.command(name="set-offload-deletion-lag")
@_NAMESPACE
@click.option("--lag", "-l", type=SECONDS, required=True, help="As 10m, 3h; -1: for ever.")
@click.pass_obj
def set_lag(target: Target, namespace: str, lag: int) -> None:
    """Set how long bookies keep a ledger after its offload."""
    ask(target, "PUT", f"{namespace_path(namespace)}/offloadDeletionLagMs", lag * 1000 if lag > 0 else lag)


@click.command(name="get-offload-deletion-lag")
@_NAMESPACE
@click.pass_obj
def get_lag(target: Target, namespace: str) -> None:
    """Show how long bookies keep a ledger after its offload, in milliseconds."""
    value = ask(target, "GET", f"{namespace_path(namespace)}/offloadDeletionLagMs").value
    show(target, f"Offload deletion lag of {namespace}", value, asked=True)


@click.command(name="clear-offload-deletion-lag")
@_NAMESPACE
@click.pass_obj
def clear_lag(target: Target, namespace: str) -> None:
    """Reset the offload deletion lag to the broker's default."""
    ask(target, "DELETE", f"{namespace_path(namespace)}/offloadDeletionLagMs")


@click.command(name="set-resource-group")
@_NAMESPACE
@click.option("--resource-group-name", "-rgn", "name", required=True, help="Anti-affinity group.")
@click.pass_obj
def set_group(target: Target, namespace: str, name: str) -> None:
    """Set the resource group of a namespace."""
    ask(target, "POST", f"{namespace_path(namespace)}/resourcegroup/{quote(name, safe='')}")


@click.command(name="get-resource-group")
@_NAMESPACE
@click.pass_obj
def get_group(target: Target, namespace: str) -> None:
    """Show the resource group of a namespace."""
    value = ask(target, "GET", f"{namespace_path(namespace)}/resourcegroup").value
    show(target, f"Resource group of {namespace}", value, asked=True)


@click.command(name="remove-resource-group")
@_NAMESPACE
@click.pass_obj
def remove_group(target: Target, namespace: str) -> None:
    """Remove a namespace from its resource group."""
    ask(target, "DELETE", f"{namespace_path(namespace)}/resourcegroup")


NAMESPACE_COMMANDS: tuple[click.Command, ...] = (
    set_threshold,
    get_threshold,
    set_lag,
    get_lag,
    clear_lag,
    set_group,
    get_group,
    remove_group,
)

_FILTERS = click.Option(
    ["--entry-filters-name", "-efn", "names"], required=True, help="Comma-separated entry filters."
)
_CLUSTERS = click.Option(["--clusters", "-c", "names"], required=True, help="Comma-separated clusters.")
_TOPICS = click.Option(["--topics", "-t", "names"], required=True, help="Comma-separated topics.")


def add_entry_filters(group: click.Group, level: str, suffix: str = "") -> None:
    """Add the commands `...-entry-filters<suffix>` of a 'namespace' or a 'topic'."""

    def body(names: str) -> Any:
        return {"entryFilterNames": names}

    _add(group, level, f"entry-filters{suffix}", "entryFilters", _FILTERS, body, applied=level == "topic")


def add_topic_clusters(group: click.Group) -> None:
    """Add the commands for the replication clusters of a topic."""
    _add(group, "topic", "replication-clusters", "replication", _CLUSTERS, comma_list, applied=True)


def add_shadow_topics(group: click.Group) -> None:
    """Add the commands for shadow topics."""
    _add(group, "topic", "shadow-topics", "shadowTopics", _TOPICS, comma_list, set_with="PUT")


def _add(
    group: click.Group,
    level: str,
    verb: str,
    rest_name: str,
    option: click.Option,
    body: Callable[[str], Any],
    *,
    set_with: str = "POST",
    applied: bool = False,
) -> None:
    metavar = "tenant/namespace" if level == "namespace" else "persistent://tenant/namespace/topic"

    def call(target: Target, method: str, name: str, value: Any = NOTHING, **query: Any) -> Any:
        return ask(target, method, f"{path_of(level, name)}/{rest_name}", value, query).value

    def set_it(target: Target, name: str, names: str) -> None:
        call(target, set_with, name, body(names))

    def get_it(target: Target, name: str, applied: bool = False) -> None:
        value = call(target, "GET", name, applied=applied or None)
        show(target, f"{verb} of {name}", value, asked=True)

    def remove_it(target: Target, name: str) -> None:
        call(target, "DELETE", name)

    def add(prefix: str, act: Callable[..., None], help_text: str, *options: click.Option) -> None:
        params = [click.Argument(["name"], metavar=metavar), *options]
        group.add_command(
            click.Command(f"{prefix}-{verb}", callback=click.pass_obj(act), params=params, help=help_text)
        )

    flag = click.Option(
        ["--applied", "-ap"], is_flag=True, help="Show the effective value, including inherited ones."
    )
    add("set", set_it, f"Set {verb}.", option)
    add("get", get_it, f"Show {verb}.", *([flag] if applied else []))
    add("remove", remove_it, f"Remove {verb}.")
