"""`magnetar admin`: inspects and changes a cluster. Each group is imported on first use."""

from __future__ import annotations

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.admin.admin_group import AS_JSON, AdminGroup
from magnetar.cli.admin.broker_options import broker_options
from magnetar.cli.admin.target import Target
from magnetar.cli.lazy_group import LazyGroup
from magnetar.cli.metadata_credentials import metadata_options
from magnetar.cli.structlog_import import load_structlog_without_rich


@click.group(cls=AdminGroup)
@click.option(
    "--metadata",
    "metadata_url",
    envvar="MAGNETAR_METADATA_STORE_URL",
    default="etcd:127.0.0.1:2379",
    show_default=True,
    metavar="URL",
    help="URL of the metadata store: etcd:HOST:PORT,...; also from MAGNETAR_METADATA_STORE_URL.",
)
@click.option(
    "--cluster",
    envvar="MAGNETAR_CLUSTER_NAME",
    default="standalone",
    show_default=True,
    metavar="NAME",
    help="Cluster name (clusterName); also from MAGNETAR_CLUSTER_NAME.",
)
@broker_options
@access_options
@metadata_options
@click.pass_context
def admin(
    context: click.Context,
    metadata_url: str,
    cluster: str,
    admin_url: str,
    output: str,
    as_json: bool,
    access: Access,
    metadata_settings: tuple[str, ...],
    timeout_s: float,
) -> None:
    """Manage a cluster.

    Groups, verbs and flags match pulsar-admin. --admin-url, --output, --json and --request-timeout are
    accepted anywhere on the line.
    """
    if as_json or context.meta.get(AS_JSON):
        output = "json"
    context.obj = Target(metadata_url, cluster, output, admin_url, access, timeout_s, metadata_settings)


def _tenants() -> click.Group:
    from magnetar.cli.admin.tenants import tenants

    return tenants


def _namespaces() -> click.Group:
    from magnetar.cli.admin.namespaces.commands import namespaces

    return namespaces


def _all_of_namespaces() -> click.Group:
    load_structlog_without_rich()
    from magnetar.cli.admin.aliases import NAMESPACE_COMMANDS, NAMESPACES, add_aliases
    from magnetar.cli.admin.namespaces.bundles import COMMANDS
    from magnetar.cli.admin.policies.commands import add_policies

    namespaces = _namespaces()
    add_policies(namespaces, "namespace")
    for command in COMMANDS:
        namespaces.add_command(command)
    for command in NAMESPACE_COMMANDS:
        namespaces.add_command(command)
    add_aliases(namespaces, NAMESPACES)
    return namespaces


def _topics() -> click.Group:
    from magnetar.cli.admin.topics.commands import topics

    return topics


def _all_of_topics() -> click.Group:
    from magnetar.cli.admin.aliases import TOPIC_COMMANDS, TOPICS, add_aliases

    topics = _topics()
    for command in TOPIC_COMMANDS:
        topics.add_command(command)
    add_aliases(topics, TOPICS, _topic_policies())
    return topics


def _topic_policies() -> click.Group:
    load_structlog_without_rich()
    from magnetar.cli.admin.aliases import TOPIC_POLICIES, add_aliases
    from magnetar.cli.admin.policies.topic_policies import topic_policies

    add_aliases(topic_policies, TOPIC_POLICIES)
    return topic_policies


def _schemas() -> click.Group:
    from magnetar.cli.admin.schemas import schemas

    return schemas


def _bookies() -> click.Group:
    from magnetar.cli.admin.bookies.commands import bookies

    return bookies


def _clusters() -> click.Group:
    from magnetar.cli.admin.clusters import clusters

    return clusters


def _brokers() -> click.Group:
    from magnetar.cli.admin.brokers import brokers

    return brokers


def _broker_stats() -> click.Group:
    from magnetar.cli.admin.brokers import broker_stats

    return broker_stats


def _isolation() -> click.Group:
    from magnetar.cli.admin.isolation_policies import isolation

    return isolation


def _quotas() -> click.Group:
    from magnetar.cli.admin.resource_quotas import quotas

    return quotas


def _transactions() -> click.Group:
    from magnetar.cli.admin.transactions import transactions

    return transactions


admin.add_command(LazyGroup("bookies", _bookies, "Manage bookies and show auto-recovery."))
admin.add_command(LazyGroup("clusters", _clusters, "Manage clusters, their URLs and failure domains."))
admin.add_command(LazyGroup("brokers", _brokers, "Manage brokers and their dynamic settings."))
admin.add_command(LazyGroup("broker-stats", _broker_stats, "Show statistics of one broker."))
admin.add_command(
    LazyGroup("ns-isolation-policy", _isolation, "Manage which brokers may serve which namespaces.")
)


def _orphans() -> click.Group:
    from magnetar.cli.admin.orphans import orphans

    return orphans


def _metadata() -> click.Group:
    load_structlog_without_rich()
    from magnetar.cli.admin.metadata.commands import metadata

    return metadata


def _ledgers() -> click.Group:
    load_structlog_without_rich()
    from magnetar.cli.admin.ledgers import ledgers

    return ledgers


admin.add_command(
    LazyGroup("ledgers", _ledgers, "Close ledgers whose recovery is stuck, and list such decisions.")
)
admin.add_command(
    LazyGroup("metadata", _metadata, "Back up and restore metadata, and reconcile it after a restore.")
)
admin.add_command(LazyGroup("orphans", _orphans, "List and delete data that metadata no longer references."))
admin.add_command(LazyGroup("resource-quotas", _quotas, "Manage the expected load of bundles."))
admin.add_command(LazyGroup("tenants", _tenants, "Manage tenants."))
admin.add_command(
    LazyGroup(
        "namespaces",
        _all_of_namespaces,
        "Manage namespaces and their policies.",
        first=_namespaces,
    )
)
admin.add_command(
    LazyGroup(
        "topics", _all_of_topics, "Manage topics and subscriptions, and show their statistics.", first=_topics
    )
)
admin.add_command(LazyGroup("schemas", _schemas, "Manage the schema versions of topics."))
admin.add_command(
    LazyGroup(
        "transactions",
        _transactions,
        "Show transactions, their coordinators and participants, and abort them.",
    )
)
admin.add_command(LazyGroup("topicPolicies", _topic_policies, "Manage the policies of single topics."))
for old_name, load in (
    ("persistent", _all_of_topics),
    ("non-persistent", _all_of_topics),
    ("properties", _tenants),
):
    old = LazyGroup(old_name, load, "An old name.")
    old.hidden = True
    admin.add_command(old)
