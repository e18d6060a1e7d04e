"""`magnetar admin`: what an operator asks of a cluster and tells it. What a command does is imported when it
runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from magnetar.standalone.lazy_group import LazyGroup

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster is meant, and how answers are to look."""

    metadata_url: str
    cluster: str
    output: str
    admin_url: str = "http://localhost:8080"


@click.group()
@click.option(
    "--metadata",
    "metadata_url",
    envvar="MAGNETAR_METADATA_STORE_URL",
    default="etcd:127.0.0.1:2379",
    show_default=True,
    metavar="URL",
    help="Where the cluster's metadata is: etcd:HOST:PORT,...; also from MAGNETAR_METADATA_STORE_URL.",
)
@click.option(
    "--cluster",
    envvar="MAGNETAR_CLUSTER_NAME",
    default="standalone",
    show_default=True,
    metavar="NAME",
    help="The cluster's name (clusterName); also from MAGNETAR_CLUSTER_NAME.",
)
@click.option(
    "--admin-url",
    envvar="MAGNETAR_ADMIN_URL",
    default="http://localhost:8080",
    show_default=True,
    metavar="URL",
    help="Where a broker's HTTP is, for tenants, namespaces and topics; also from MAGNETAR_ADMIN_URL.",
)
@click.option(
    "--output",
    type=click.Choice(["auto", "table", "plain", "json"]),
    default="auto",
    show_default=True,
    help="How answers look; auto is a table on a terminal, and tab-separated or JSON elsewhere.",
)
@click.pass_context
def admin(context: click.Context, metadata_url: str, cluster: str, admin_url: str, output: str) -> None:
    """Look after a cluster."""
    context.obj = Target(metadata_url, cluster, output, admin_url)


def _tenants() -> click.Group:
    from magnetar.standalone.admin_tenants import tenants

    return tenants


def _namespaces() -> click.Group:
    from magnetar.standalone.admin_namespaces import namespaces

    return namespaces


def _topics() -> click.Group:
    from magnetar.standalone.admin_topics import topics

    return topics


def _topic_policies() -> click.Group:
    from magnetar.standalone.admin_topic_policies import topic_policies

    return topic_policies


admin.add_command(LazyGroup("tenants", _tenants, "Tenants: whose namespaces they are."))
admin.add_command(LazyGroup("namespaces", _namespaces, "Namespaces, and the policies of all their topics."))
admin.add_command(LazyGroup("topics", _topics, "Topics, their subscriptions and their figures."))
admin.add_command(LazyGroup("topicPolicies", _topic_policies, "Policies of single topics."))


@admin.group()
def bookies() -> None:
    """Bookies, and what auto-recovery does about them."""


@bookies.command(name="list")
@click.pass_obj
def list_bookies(target: Target) -> None:
    """Every bookie, up or not."""
    from magnetar.standalone.admin_bookies import list_bookies as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def show(target: Target, bookie_id: str) -> None:
    """One bookie, and which share of the ledgers it has. Reads the metadata of all ledgers."""
    from magnetar.standalone.admin_bookies import show_bookie

    show_bookie(target, bookie_id)


@bookies.command(name="under-replicated")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show so many.")
@click.pass_obj
def under_replicated(target: Target, limit: int) -> None:
    """Ledgers that lack copies, and who copies them."""
    from magnetar.standalone.admin_bookies import under_replicated as run

    run(target, limit)


@bookies.command(name="recover-status")
@click.pass_obj
def recover_status(target: Target) -> None:
    """How auto-recovery stands: who leads it, which bookies are away, how many ledgers lack copies."""
    from magnetar.standalone.admin_bookies import recover_status as run

    run(target)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Say so and return; the cluster does the rest.")
@click.pass_obj
def decommission(target: Target, bookie_id: str, no_wait: bool) -> None:
    """Have a bookie leave for good: it takes no new ledgers, others copy what it holds, its identity goes.

    Waits and shows how far it is; ending the command does not stop it. `recommission` does.
    """
    from magnetar.standalone.admin_decommission import decommission as run

    run(target, bookie_id, wait=not no_wait)


@bookies.command()
@click.argument("bookie_id", metavar="ID")
@click.pass_obj
def recommission(target: Target, bookie_id: str) -> None:
    """Think better of a decommissioning that is not done yet. What was moved stays where it is now."""
    from magnetar.standalone.admin_decommission import recommission as run

    run(target, bookie_id)
