"""`magnetar admin`: what an operator asks of a cluster and tells it. What a command does is imported when it
runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from magnetar.standalone.admin_group import AS_JSON, AdminGroup
from magnetar.standalone.client_options import token_of
from magnetar.standalone.command_options import load_structlog_without_rich
from magnetar.standalone.lazy_group import LazyGroup, WholeSentences

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster is meant, and how answers are to look."""

    metadata_url: str
    cluster: str
    output: str
    admin_url: str = "http://localhost:8080"
    token: str = ""
    trust_certs_file: str = ""
    allow_insecure: bool = False
    timeout_s: float = 60.0


@click.group(cls=AdminGroup)
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
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="The same as --output json; may stand at the end of the line, too.",
)
@click.option(
    "--token",
    envvar="MAGNETAR_TOKEN",
    default="",
    metavar="TEXT",
    help="A token to be known by; file:PATH reads it. Also from MAGNETAR_TOKEN.",
)
@click.option(
    "--auth-params", default="", metavar="TEXT", help="The same as pulsar-admin writes it: token:TEXT."
)
@click.option(
    "--auth-plugin", default="", metavar="NAME", help="token, or the name of Pulsar's class for it."
)
@click.option(
    "--tls-trust-cert-path",
    "trust_certs_file",
    default="",
    metavar="FILE",
    help="Certificates (PEM) that are trusted instead of the system's.",
)
@click.option("--tls-allow-insecure", "allow_insecure", is_flag=True, help="Accept any certificate.")
@click.option(
    "--request-timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds that a broker may take to answer.",
)
@click.pass_context
def admin(
    context: click.Context,
    metadata_url: str,
    cluster: str,
    admin_url: str,
    output: str,
    as_json: bool,
    token: str,
    auth_params: str,
    auth_plugin: str,
    trust_certs_file: str,
    allow_insecure: bool,
    timeout_s: float,
) -> None:
    """Look after a cluster.

    Groups, verbs and flags are those of pulsar-admin.
    """
    if as_json or context.meta.get(AS_JSON):
        output = "json"
    context.obj = Target(
        metadata_url,
        cluster,
        output,
        admin_url,
        token_of(token, auth_params, auth_plugin),
        trust_certs_file,
        allow_insecure,
        timeout_s,
    )


def _tenants() -> click.Group:
    from magnetar.standalone.admin_tenants import tenants

    return tenants


def _namespaces() -> click.Group:
    from magnetar.standalone.admin_namespaces import namespaces

    return namespaces


def _all_of_namespaces() -> click.Group:
    load_structlog_without_rich()
    from magnetar.standalone.admin_aliases import NAMESPACE_COMMANDS, NAMESPACES, add_aliases
    from magnetar.standalone.admin_bundles import COMMANDS
    from magnetar.standalone.admin_policies import add_policies

    namespaces = _namespaces()
    add_policies(namespaces, "namespace")
    for command in COMMANDS:
        namespaces.add_command(command)
    for command in NAMESPACE_COMMANDS:
        namespaces.add_command(command)
    add_aliases(namespaces, NAMESPACES)
    return namespaces


def _topics() -> click.Group:
    from magnetar.standalone.admin_topics import topics

    return topics


def _all_of_topics() -> click.Group:
    from magnetar.standalone.admin_aliases import TOPIC_COMMANDS, TOPICS, add_aliases

    topics = _topics()
    for command in TOPIC_COMMANDS:
        topics.add_command(command)
    add_aliases(topics, TOPICS, _topic_policies())
    return topics


def _topic_policies() -> click.Group:
    load_structlog_without_rich()
    from magnetar.standalone.admin_aliases import TOPIC_POLICIES, add_aliases
    from magnetar.standalone.admin_topic_policies import topic_policies

    add_aliases(topic_policies, TOPIC_POLICIES)
    return topic_policies


def _schemas() -> click.Group:
    from magnetar.standalone.admin_schemas import schemas

    return schemas


def _clusters() -> click.Group:
    from magnetar.standalone.admin_clusters import clusters

    return clusters


def _brokers() -> click.Group:
    from magnetar.standalone.admin_brokers import brokers

    return brokers


def _broker_stats() -> click.Group:
    from magnetar.standalone.admin_brokers import broker_stats

    return broker_stats


def _isolation() -> click.Group:
    from magnetar.standalone.admin_isolation import isolation

    return isolation


def _quotas() -> click.Group:
    from magnetar.standalone.admin_resource_quotas import quotas

    return quotas


admin.add_command(LazyGroup("clusters", _clusters, "Clusters: where they are reached, what they consist of."))
admin.add_command(LazyGroup("brokers", _brokers, "Brokers, and their settings while they run."))
admin.add_command(LazyGroup("broker-stats", _broker_stats, "Figures of one broker."))
admin.add_command(LazyGroup("ns-isolation-policy", _isolation, "Which brokers may serve which namespaces."))


def _orphans() -> click.Group:
    from magnetar.standalone.admin_orphans import orphans

    return orphans


def _metadata() -> click.Group:
    load_structlog_without_rich()
    from magnetar.standalone.admin_metadata import metadata

    return metadata


def _ledgers() -> click.Group:
    load_structlog_without_rich()
    from magnetar.standalone.admin_ledgers import ledgers

    return ledgers


admin.add_command(
    LazyGroup("ledgers", _ledgers, "Ledgers that nothing can decide, and what was decided of them.")
)
admin.add_command(LazyGroup("metadata", _metadata, "Copies of metadata, and what follows a restoration."))
admin.add_command(LazyGroup("orphans", _orphans, "What nothing in metadata names any more."))
admin.add_command(LazyGroup("resource-quotas", _quotas, "How much load bundles are expected to be."))
admin.add_command(LazyGroup("tenants", _tenants, "Tenants: whose namespaces they are."))
admin.add_command(
    LazyGroup(
        "namespaces",
        _all_of_namespaces,
        "Namespaces, and the policies of all their topics.",
        first=_namespaces,
    )
)
admin.add_command(
    LazyGroup("topics", _all_of_topics, "Topics, their subscriptions and their figures.", first=_topics)
)
admin.add_command(LazyGroup("schemas", _schemas, "Schemas of topics, version by version."))
admin.add_command(LazyGroup("topicPolicies", _topic_policies, "Policies of single topics."))
for old_name, load in (
    ("persistent", _all_of_topics),
    ("non-persistent", _all_of_topics),
    ("properties", _tenants),
):
    old = LazyGroup(old_name, load, "An old name.")
    old.hidden = True
    admin.add_command(old)


@admin.group(cls=WholeSentences)
def bookies() -> None:
    """Bookies, and what auto-recovery does about them."""
    load_structlog_without_rich()


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


_BOOKIE = click.option("--bookie", "-b", required=True, metavar="ID", help="The bookie, by its id.")


@bookies.command(name="list-bookies")
@click.pass_obj
def list_known(target: Target) -> None:
    """The ids of all bookies, as a broker knows them."""
    from magnetar.standalone.admin_racks import list_known as run

    run(target)


@bookies.command(name="racks-placement")
@click.pass_obj
def racks_placement(target: Target) -> None:
    """In which racks bookies are, as far as somebody said it with `set-bookie-rack`."""
    from magnetar.standalone.admin_racks import racks_placement as run

    run(target)


@bookies.command(name="get-bookie-rack")
@_BOOKIE
@click.pass_obj
def get_bookie_rack(target: Target, bookie: str) -> None:
    """In which rack somebody said that a bookie is."""
    from magnetar.standalone.admin_racks import get_rack

    get_rack(target, bookie)


@bookies.command(name="set-bookie-rack")
@_BOOKIE
@click.option("--rack", "-r", required=True, help="The rack: /rack-1, /region/zone.")
@click.option("--hostname", "-hn", default="", help="How its host is called.")
@click.option("--group", "-g", default="default", show_default=True, help="The group of bookies it is in.")
@click.pass_obj
def set_bookie_rack(target: Target, bookie: str, rack: str, hostname: str, group: str) -> None:
    """Say in which rack a bookie is: it comes before what the bookie says itself."""
    from magnetar.standalone.admin_racks import set_rack

    set_rack(target, bookie, rack, hostname, group)


@bookies.command(name="delete-bookie-rack")
@_BOOKIE
@click.pass_obj
def delete_bookie_rack(target: Target, bookie: str) -> None:
    """Let a bookie itself say in which rack it is."""
    from magnetar.standalone.admin_racks import delete_rack

    delete_rack(target, bookie)
