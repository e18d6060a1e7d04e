"""`magnetar admin topics`: commands for whole topics. Subscription commands are added at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.bulk import delete
from magnetar.cli.admin.http_client import NOTHING, NotFound, ask, namespace_path, show, topic_path
from magnetar.cli.admin.namespaces.settings import add_shadow_topics, add_topic_clusters
from magnetar.cli.admin.permissions import add_permissions
from magnetar.cli.admin.topics.storage import COMMANDS as STORAGE_COMMANDS
from magnetar.cli.admin.topics.subscriptions import COMMANDS
from magnetar.cli.option_values import TOPIC, pairs
from magnetar.common.naming.topic_name import DOMAINS

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_NEW_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic", type=TOPIC)
_FORCE = click.option(
    "--force", "-f", is_flag=True, help="Delete even if producers or consumers are connected."
)
_METADATA = click.option("--metadata", "-m", multiple=True, help="Property as key=value; repeat for several.")
_DOMAIN = click.option(
    "--topic-domain",
    "-td",
    "domain",
    type=click.Choice(["persistent", "non-persistent", "non_persistent"]),
    default=None,
    help="Only topics of this domain.",
)
_SYSTEM = click.option(
    "--include-system-topic", "-ist", "system_too", is_flag=True, help="Include system topics."
)


@click.group()
def topics() -> None:
    """Topics."""


@topics.command(name="list")
@click.argument("namespace", metavar="tenant/namespace")
@_DOMAIN
@_SYSTEM
@click.option("--bundle", "-b", default=None, help="Only topics of this bundle.")
@click.pass_obj
def list_topics(
    target: Target, namespace: str, domain: str | None, system_too: bool, bundle: str | None
) -> None:
    """List the topics of a namespace, including each partition."""
    query = {"includeSystemTopic": system_too or None, "bundle": bundle}
    show(target, f"Topics of {namespace}", _list(target, namespace, domain, "", query))


@topics.command(name="list-partitioned-topics")
@click.argument("namespace", metavar="tenant/namespace")
@_DOMAIN
@_SYSTEM
@click.pass_obj
def list_partitioned(target: Target, namespace: str, domain: str | None, system_too: bool) -> None:
    """List the partitioned topics of a namespace."""
    query = {"includeSystemTopic": system_too or None}
    show(
        target,
        f"Partitioned topics of {namespace}",
        _list(target, namespace, domain, "/partitioned", query),
    )


def _list(
    target: Target, namespace: str, domain: str | None, kind: str, query: Mapping[str, object]
) -> list[str]:
    found: list[str] = []
    for each in DOMAINS if domain is None else (domain.replace("_", "-"),):
        path = namespace_path(namespace).replace("/namespaces/", f"/{each}/", 1)
        found += ask(target, "GET", f"{path}{kind}", query=query).value
    return found


@topics.command()
@_NEW_TOPIC
@_METADATA
@click.pass_obj
def create(target: Target, topic: str, metadata: tuple[str, ...]) -> None:
    """Create a non-partitioned topic."""
    ask(target, "PUT", topic_path(topic), pairs(metadata, "--metadata"))


@topics.command(name="create-partitioned-topic")
@_NEW_TOPIC
@click.option("--partitions", "-p", type=int, required=True, help="Number of partitions.")
@_METADATA
@click.pass_obj
def create_partitioned(target: Target, topic: str, partitions: int, metadata: tuple[str, ...]) -> None:
    """Create a partitioned topic."""
    body: Any = {"partitions": partitions, "properties": pairs(metadata, "--metadata")}
    ask(target, "PUT", f"{topic_path(topic)}/partitions", body)


@topics.command(name="update-partitioned-topic")
@_TOPIC
@click.option("--partitions", "-p", type=int, required=True, help="New total number of partitions.")
@click.option("--update-local-only", "-ulo", "local", is_flag=True, help="Update this cluster only.")
@click.option("--force", "-f", is_flag=True, help="No effect: existing topics are always checked.")
@click.pass_obj
def update_partitioned(target: Target, topic: str, partitions: int, local: bool, force: bool) -> None:
    """Increase the number of partitions of a topic."""
    query = {"updateLocalTopicOnly": local or None, "force": force or None}
    ask(target, "POST", f"{topic_path(topic)}/partitions", partitions, query)


@topics.command(name="get-partitioned-topic-metadata")
@_TOPIC
@click.pass_obj
def get_partitioned(target: Target, topic: str) -> None:
    """Show the number of partitions of a topic."""
    show(target, topic, ask(target, "GET", f"{topic_path(topic)}/partitions").value)


@topics.command(name="delete-partitioned-topic")
@_TOPIC
@_FORCE
@click.pass_obj
def delete_partitioned(target: Target, topic: str, force: bool) -> None:
    """Delete a partitioned topic with all partitions."""
    ask(target, "DELETE", f"{topic_path(topic)}/partitions", query={"force": force or None})


def _plain(name: str, method: str, path: str, help_text: str) -> None:
    """Return a command that takes only a topic and shows the broker's response."""

    def run(target: Target, topic: str) -> None:
        show(target, f"{name} of {topic}", ask(target, method, f"{topic_path(topic)}/{path}", NOTHING).value)

    run.__doc__ = help_text
    topics.command(name=name)(_TOPIC(click.pass_obj(run)))


_plain("create-missed-partitions", "POST", "createMissedPartitions", "Create missing partitions.")
_plain("unload", "PUT", "unload", "Unload a topic; it loads again on request.")
_plain("terminate", "POST", "terminate", "Terminate a topic: refuse new messages; shows the last message id.")
_plain("partitioned-terminate", "POST", "terminate/partitions", "Terminate every partition of a topic.")
_plain(
    "partitioned-stats-internal",
    "GET",
    "partitioned-internalStats",
    "Show the ledgers and cursors of partitions.",
)
_plain("subscriptions", "GET", "subscriptions", "List the subscriptions of a topic.")
_plain("last-message-id", "GET", "lastMessageId", "Show the last message id.")
_plain("get-properties", "GET", "properties", "Show the properties of a topic.")


@topics.command(name="update-properties")
@_TOPIC
@click.option(
    "--property",
    "-p",
    "given",
    multiple=True,
    required=True,
    help="Property as key=value; repeat for several.",
)
@click.pass_obj
def update_properties(target: Target, topic: str, given: tuple[str, ...]) -> None:
    """Set properties of a topic; other properties are kept."""
    ask(target, "PUT", f"{topic_path(topic)}/properties", pairs(given, "--property"))


@topics.command(name="remove-properties")
@_TOPIC
@click.option("--key", "-k", required=True, help="Property name.")
@click.pass_obj
def remove_properties(target: Target, topic: str, key: str) -> None:
    """Remove a property of a topic."""
    ask(target, "DELETE", f"{topic_path(topic)}/properties", query={"key": key})


_FIGURES: Final = {
    "getPreciseBacklog": ("-gpb", "--get-precise-backlog", "Count backlogs exactly, in messages."),
    "subscriptionBacklogSize": ("-sbs", "--get-subscription-backlog-size", "Include backlog sizes in bytes."),
    "getEarliestTimeInBacklog": (
        "-etb",
        "--get-earliest-time-in-backlog",
        "Include the age of each backlog.",
    ),
    "whyNotDispatching": (
        "-why",
        "--why-not-dispatching",
        "Include why each subscription sends nothing now.",
    ),
    "excludePublishers": ("-ep", "--exclude-publishers", "Without publishers."),
    "excludeConsumers": ("-ec", "--exclude-consumers", "Without consumers."),
}
"""Statistics options, by query parameter."""


def _with_figures(command: Callable[..., None]) -> Callable[..., None]:
    for parameter, (short, long, help_text) in reversed(_FIGURES.items()):
        command = click.option(long, short, parameter.lower(), is_flag=True, help=help_text)(command)
    return command


def _query(given: Mapping[str, bool]) -> dict[str, object]:
    return {parameter: given[parameter.lower()] or None for parameter in _FIGURES}


@topics.command()
@_TOPIC
@_with_figures
@click.pass_obj
def stats(target: Target, /, topic: str, **given: bool) -> None:
    """Show statistics of a topic and its clients."""
    value = _of_one_topic(target, topic, "partitioned-stats", "stats", _query(given))
    show(target, f"Figures of {topic}", value)


def _of_one_topic(
    target: Target, topic: str, of_partitioned: str, what: str, query: Mapping[str, object]
) -> Any:
    """Return an answer about a topic. For a partitioned one the ClickException names its command."""
    path = topic_path(topic)
    try:
        return ask(target, "GET", f"{path}/{what}", query=query).value
    except NotFound:
        try:
            count = ask(target, "GET", f"{path}/partitions").value["partitions"]
        except (click.ClickException, KeyError, TypeError):
            count = 0
        if not count:
            raise
    raise click.ClickException(
        f"{topic} has {count} partitions; use `magnetar admin topics {of_partitioned} {topic}`, or name one "
        f"of them, such as {topic}-partition-0"
    )


@topics.command(name="partitioned-stats")
@_TOPIC
@click.option("--per-partition", is_flag=True, help="Include each partition.")
@_with_figures
@click.pass_obj
def partitioned_stats(target: Target, /, topic: str, per_partition: bool, **given: bool) -> None:
    """Show statistics of a partitioned topic."""
    query = {"perPartition": per_partition, **_query(given)}
    value = ask(target, "GET", f"{topic_path(topic)}/partitioned-stats", query=query).value
    show(target, f"Figures of {topic}", value)


@topics.command(name="stats-internal")
@_TOPIC
@click.option("--metadata", "-m", is_flag=True, help="Include the metadata of each ledger.")
@click.pass_obj
def stats_internal(target: Target, topic: str, metadata: bool) -> None:
    """Show the ledgers and cursors of a topic."""
    query = {"metadata": metadata or None}
    value = _of_one_topic(target, topic, "partitioned-stats-internal", "internalStats", query)
    show(target, f"Storage of {topic}", value)


for command in (delete, *COMMANDS, *STORAGE_COMMANDS):
    topics.add_command(command)
add_permissions(topics, "topic")
add_topic_clusters(topics)
add_shadow_topics(topics)
