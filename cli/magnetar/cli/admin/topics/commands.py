"""`magnetar admin topics`: topics as a whole. What is done to their subscriptions is added at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.admin.bulk import delete
from magnetar.cli.admin.http_client import NOTHING, ask, namespace_path, show, topic_path
from magnetar.cli.admin.namespaces.settings import add_shadow_topics, add_topic_clusters
from magnetar.cli.admin.permissions import add_permissions
from magnetar.cli.admin.topics.storage import COMMANDS as STORAGE_COMMANDS
from magnetar.cli.admin.topics.subscriptions import COMMANDS
from magnetar.cli.option_values import pairs
from magnetar.common.naming.topic_name import DOMAINS

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_FORCE = click.option("--force", "-f", is_flag=True, help="Although producers or consumers are connected.")
_METADATA = click.option("--metadata", "-m", multiple=True, help="A property as key=value, once for each.")
_DOMAIN = click.option(
    "--topic-domain",
    "-td",
    "domain",
    type=click.Choice(["persistent", "non-persistent", "non_persistent"]),
    default=None,
    help="Of one kind only.",
)
_SYSTEM = click.option("--include-system-topic", "-ist", "system_too", is_flag=True, help="Those too.")


@click.group()
def topics() -> None:
    """Topics."""


@topics.command(name="list")
@click.argument("namespace", metavar="tenant/namespace")
@_DOMAIN
@_SYSTEM
@click.option("--bundle", "-b", default=None, help="Of one bundle only.")
@click.pass_obj
def list_topics(
    target: Target, namespace: str, domain: str | None, system_too: bool, bundle: str | None
) -> None:
    """The topics of a namespace; partitions each by its own name."""
    query = {"includeSystemTopic": system_too or None, "bundle": bundle}
    show(target, f"Topics of {namespace}", _list(target, namespace, domain, "", query))


@topics.command(name="list-partitioned-topics")
@click.argument("namespace", metavar="tenant/namespace")
@_DOMAIN
@_SYSTEM
@click.pass_obj
def list_partitioned(target: Target, namespace: str, domain: str | None, system_too: bool) -> None:
    """The partitioned topics of a namespace."""
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
@_TOPIC
@_METADATA
@click.pass_obj
def create(target: Target, topic: str, metadata: tuple[str, ...]) -> None:
    """Make a topic that is not partitioned."""
    ask(target, "PUT", topic_path(topic), pairs(metadata, "--metadata"))


@topics.command(name="create-partitioned-topic")
@_TOPIC
@click.option("--partitions", "-p", type=int, required=True, help="How many.")
@_METADATA
@click.pass_obj
def create_partitioned(target: Target, topic: str, partitions: int, metadata: tuple[str, ...]) -> None:
    """Make a partitioned topic."""
    body: Any = {"partitions": partitions, "properties": pairs(metadata, "--metadata")}
    ask(target, "PUT", f"{topic_path(topic)}/partitions", body)


@topics.command(name="update-partitioned-topic")
@_TOPIC
@click.option("--partitions", "-p", type=int, required=True, help="How many there are to be.")
@click.option("--update-local-only", "-ulo", "local", is_flag=True, help="In this cluster only.")
@click.option("--force", "-f", is_flag=True, help="Makes no difference: what is there is looked at, anyway.")
@click.pass_obj
def update_partitioned(target: Target, topic: str, partitions: int, local: bool, force: bool) -> None:
    """Give a partitioned topic more partitions."""
    query = {"updateLocalTopicOnly": local or None, "force": force or None}
    ask(target, "POST", f"{topic_path(topic)}/partitions", partitions, query)


@topics.command(name="get-partitioned-topic-metadata")
@_TOPIC
@click.pass_obj
def get_partitioned(target: Target, topic: str) -> None:
    """How many partitions a topic has."""
    show(target, topic, ask(target, "GET", f"{topic_path(topic)}/partitions").value)


@topics.command(name="delete-partitioned-topic")
@_TOPIC
@_FORCE
@click.pass_obj
def delete_partitioned(target: Target, topic: str, force: bool) -> None:
    """Delete a partitioned topic with all partitions."""
    ask(target, "DELETE", f"{topic_path(topic)}/partitions", query={"force": force or None})


def _plain(name: str, method: str, path: str, help_text: str) -> None:
    """A command that has a topic and nothing else, and shows what the broker answers."""

    def run(target: Target, topic: str) -> None:
        show(target, f"{name} of {topic}", ask(target, method, f"{topic_path(topic)}/{path}", NOTHING).value)

    run.__doc__ = help_text
    topics.command(name=name)(_TOPIC(click.pass_obj(run)))


_plain("create-missed-partitions", "POST", "createMissedPartitions", "Make the partitions that are missing.")
_plain("unload", "PUT", "unload", "Close a topic; it is loaded again on request.")
_plain("terminate", "POST", "terminate", "Take no more messages; shows the id of the last one.")
_plain("partitioned-terminate", "POST", "terminate/partitions", "The same for every partition.")
_plain(
    "partitioned-stats-internal", "GET", "partitioned-internalStats", "The ledgers and cursors of partitions."
)
_plain("subscriptions", "GET", "subscriptions", "The subscriptions of a topic.")
_plain("last-message-id", "GET", "lastMessageId", "The id of the last message.")
_plain("get-properties", "GET", "properties", "The properties of a topic.")


@topics.command(name="update-properties")
@_TOPIC
@click.option("--property", "-p", "given", multiple=True, required=True, help="key=value, once for each.")
@click.pass_obj
def update_properties(target: Target, topic: str, given: tuple[str, ...]) -> None:
    """Set properties of a topic; others stay."""
    ask(target, "PUT", f"{topic_path(topic)}/properties", pairs(given, "--property"))


@topics.command(name="remove-properties")
@_TOPIC
@click.option("--key", "-k", required=True, help="Its name.")
@click.pass_obj
def remove_properties(target: Target, topic: str, key: str) -> None:
    """Remove a property of a topic."""
    ask(target, "DELETE", f"{topic_path(topic)}/properties", query={"key": key})


_FIGURES: Final = {
    "getPreciseBacklog": ("-gpb", "--get-precise-backlog", "Count backlogs message by message."),
    "subscriptionBacklogSize": ("-sbs", "--get-subscription-backlog-size", "Bytes of backlogs, too."),
    "getEarliestTimeInBacklog": ("-etb", "--get-earliest-time-in-backlog", "How old each backlog is, too."),
    "excludePublishers": ("-ep", "--exclude-publishers", "Without publishers."),
    "excludeConsumers": ("-ec", "--exclude-consumers", "Without consumers."),
}
"""Options of figures by the parameters of the query that they are."""


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
    """Figures of a topic and its clients."""
    value = ask(target, "GET", f"{topic_path(topic)}/stats", query=_query(given)).value
    show(target, f"Figures of {topic}", value)


@topics.command(name="partitioned-stats")
@_TOPIC
@click.option("--per-partition", is_flag=True, help="Those of each partition, too.")
@_with_figures
@click.pass_obj
def partitioned_stats(target: Target, /, topic: str, per_partition: bool, **given: bool) -> None:
    """Figures of a partitioned topic."""
    query = {"perPartition": per_partition, **_query(given)}
    value = ask(target, "GET", f"{topic_path(topic)}/partitioned-stats", query=query).value
    show(target, f"Figures of {topic}", value)


@topics.command(name="stats-internal")
@_TOPIC
@click.option("--metadata", "-m", is_flag=True, help="What metadata says of each ledger, too.")
@click.pass_obj
def stats_internal(target: Target, topic: str, metadata: bool) -> None:
    """The ledgers and cursors of a topic."""
    path = f"{topic_path(topic)}/internalStats"
    show(target, f"Storage of {topic}", ask(target, "GET", path, query={"metadata": metadata or None}).value)


for command in (delete, *COMMANDS, *STORAGE_COMMANDS):
    topics.add_command(command)
add_permissions(topics, "topic")
add_topic_clusters(topics)
add_shadow_topics(topics)
