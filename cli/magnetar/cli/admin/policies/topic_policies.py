"""`magnetar admin topicPolicies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from magnetar.cli.admin.http_client import ask, topic_path
from magnetar.cli.admin.namespaces.settings import add_entry_filters, add_topic_clusters
from magnetar.cli.admin.policies.commands import add_policies

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target


@click.group()
def topic_policies() -> None:
    """Manage the policies of single topics."""


@topic_policies.command(name="delete-topic-policies")
@click.argument("topic")
@click.pass_obj
def delete_topic_policies(target: Target, topic: str) -> None:
    """Remove all policies of a topic."""
    ask(target, "DELETE", f"{topic_path(topic)}/policies")


add_policies(topic_policies, "topic")
add_entry_filters(topic_policies, "topic", "-per-topic")
add_topic_clusters(topic_policies)
