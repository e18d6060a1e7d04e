"""`magnetar admin topics`: topics as a whole. What is done to their subscriptions is added at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from magnetar.standalone.admin_http import NOTHING, ask, namespace_path, pairs, show, topic_path
from magnetar.standalone.admin_subscriptions import COMMANDS

if TYPE_CHECKING:
    from magnetar.standalone.admin import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_FORCE = click.option("--force", "-f", is_flag=True, help="Although producers or consumers are connected.")
_METADATA = click.option("--metadata", "-m", multiple=True, help="A property as key=value, once for each.")
_DOMAIN = click.option(
    "--topic-domain",
    "-td",
    "domain",
    type=click.Choice(["persistent", "non-persistent"]),
    default="persistent",
    show_default=True,
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
def list_topics(target: Target, namespace: str, domain: str, system_too: bool, bundle: str | None) -> None:
    """The topics of a namespace; partitions each by its own name."""
    path = namespace_path(namespace).replace("/namespaces/", f"/{domain}/", 1)
    query = {"includeSystemTopic": system_too or None, "bundle": bundle}
    show(target, f"Topics of {namespace}", ask(target, "GET", path, query=query).value)


@topics.command(name="list-partitioned-topics")
@click.argument("namespace", metavar="tenant/namespace")
@_DOMAIN
@_SYSTEM
@click.pass_obj
def list_partitioned(target: Target, namespace: str, domain: str, system_too: bool) -> None:
    """The partitioned topics of a namespace."""
    path = namespace_path(namespace).replace("/namespaces/", f"/{domain}/", 1)
    value = ask(target, "GET", f"{path}/partitioned", query={"includeSystemTopic": system_too or None}).value
    show(target, f"Partitioned topics of {namespace}", value)


@topics.command()
@_TOPIC
@_METADATA
@click.pass_obj
def create(target: Target, topic: str, metadata: tuple[str, ...]) -> None:
    """Make a topic that is not partitioned."""
    ask(target, "PUT", topic_path(topic), pairs(metadata, "--metadata"))


@topics.command()
@_TOPIC
@_FORCE
@click.pass_obj
def delete(target: Target, topic: str, force: bool) -> None:
    """Delete a topic with its subscriptions and messages."""
    ask(target, "DELETE", topic_path(topic), query={"force": force or None})


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
@click.pass_obj
def update_partitioned(target: Target, topic: str, partitions: int) -> None:
    """Give a partitioned topic more partitions."""
    ask(target, "POST", f"{topic_path(topic)}/partitions", partitions)


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
_plain("unload", "PUT", "unload", "Close a topic; it is loaded when somebody asks for it.")
_plain("terminate", "POST", "terminate", "Take no more messages; shows the id of the last one.")
_plain("partitioned-terminate", "POST", "terminate/partitions", "The same for every partition.")
_plain("stats-internal", "GET", "internalStats", "The ledgers and cursors of a topic.")
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
@click.option("--key", "-k", required=True)
@click.pass_obj
def remove_properties(target: Target, topic: str, key: str) -> None:
    """Remove a property of a topic."""
    ask(target, "DELETE", f"{topic_path(topic)}/properties", query={"key": key})


@topics.command()
@_TOPIC
@click.pass_obj
def stats(target: Target, topic: str) -> None:
    """Figures of a topic and its clients."""
    show(target, f"Figures of {topic}", ask(target, "GET", f"{topic_path(topic)}/stats").value)


@topics.command(name="partitioned-stats")
@_TOPIC
@click.option("--per-partition", is_flag=True, help="Those of each partition, too.")
@click.pass_obj
def partitioned_stats(target: Target, topic: str, per_partition: bool) -> None:
    """Figures of a partitioned topic."""
    value = ask(
        target, "GET", f"{topic_path(topic)}/partitioned-stats", query={"perPartition": per_partition}
    ).value
    show(target, f"Figures of {topic}", value)


for command in COMMANDS:
    topics.add_command(command)
