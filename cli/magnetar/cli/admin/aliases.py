"""Aliases for commands that pulsar-admin names differently. Help does not list them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import ask, namespace_path, show, topic_path

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

TOPICS: Final = {
    "get-deduplication-enabled": "get-deduplication",
    **{
        f"{verb}-{old}": f"{verb}-{new}"
        for verb in ("get", "set", "remove")
        for old, new in (
            ("max-unacked-messages-on-consumer", "max-unacked-messages-per-consumer"),
            ("max-unacked-messages-on-subscription", "max-unacked-messages-per-subscription"),
            ("maxProducers", "max-producers"),
            ("max-subscriptions", "max-subscriptions-per-topic"),
        )
    },
}
TOPIC_POLICIES: Final = {"delete": "delete-topic-policies", "get-backlog-quota": "get-backlog-quotas"}
NAMESPACES: Final = {"destinations": "topics"}


def add_aliases(group: click.Group, names: dict[str, str], others: click.Group | None = None) -> None:
    """Add aliases to a group, after adding the commands of `others` that the group lacks."""
    for name, command in others.commands.items() if others is not None else ():
        if name not in group.commands and name.partition("-")[0] in ("get", "set", "remove"):
            _add_hidden(group, name, command)
    for alias, name in names.items():
        if alias not in group.commands and name in group.commands:
            _add_hidden(group, alias, group.commands[name])


def _add_hidden(group: click.Group, name: str, command: click.Command) -> None:
    hidden = copy.copy(command)
    hidden.name, hidden.hidden = name, True
    group.add_command(hidden)


_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_NAMESPACE = click.argument("namespace", metavar="tenant/namespace")
_KEY = click.option("--key", "-k", required=True, help="Property name.")


@click.command(name="enable-deduplication", hidden=True)
@_TOPIC
@click.pass_obj
def enable_deduplication(target: Target, topic: str) -> None:
    """Enable deduplication of messages that a producer sends twice."""
    ask(target, "POST", f"{topic_path(topic)}/deduplicationEnabled", True)


@click.command(name="disable-deduplication", hidden=True)
@_TOPIC
@click.pass_obj
def disable_deduplication(target: Target, topic: str) -> None:
    """Disable deduplication of messages that a producer sends twice."""
    ask(target, "POST", f"{topic_path(topic)}/deduplicationEnabled", False)


@click.command(name="get-shadow-source")
@_TOPIC
@click.pass_obj
def get_shadow_source(target: Target, topic: str) -> None:
    """Show the source topic of a shadow topic."""
    properties = ask(target, "GET", f"{topic_path(topic)}/properties").value or {}
    show(target, f"Source of {topic}", properties.get("PULSAR.SHADOW_SOURCE"))


@click.command(name="set-property")
@_NAMESPACE
@_KEY
@click.option("--value", "-v", required=True, help="New value.")
@click.pass_obj
def set_property(target: Target, namespace: str, key: str, value: str) -> None:
    """Set one property; other properties are kept."""
    ask(target, "PUT", f"{_property(namespace, key)}/{quote(value, safe='')}")


@click.command(name="get-property")
@_NAMESPACE
@_KEY
@click.pass_obj
def get_property(target: Target, namespace: str, key: str) -> None:
    """One property."""
    show(target, key, ask(target, "GET", _property(namespace, key)).value)


@click.command(name="remove-property")
@_NAMESPACE
@_KEY
@click.pass_obj
def remove_property(target: Target, namespace: str, key: str) -> None:
    """Remove one property."""
    show(target, key, ask(target, "DELETE", _property(namespace, key)).value)


def _property(namespace: str, key: str) -> str:
    return f"{namespace_path(namespace)}/property/{quote(key, safe='')}"


TOPIC_COMMANDS: Final = (enable_deduplication, disable_deduplication, get_shadow_source)
NAMESPACE_COMMANDS: Final = (set_property, get_property, remove_property)
