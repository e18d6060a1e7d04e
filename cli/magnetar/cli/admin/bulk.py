"""Operations on many topics or bundles, one after the other, with a progress bar on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from magnetar.cli.admin.http_client import NoBroker, ask, namespace_path, topic_path
from magnetar.cli.progress import progress_bar
from magnetar.common.errors import InvalidName
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target


@click.command()
@click.argument("topic", metavar="persistent://tenant/namespace/topic")
@click.option("--force", "-f", is_flag=True, help="Delete even if producers or consumers are connected.")
@click.option(
    "--regex",
    "-r",
    is_flag=True,
    help="TOPIC is a regular expression; applies to all matching topics of the namespace.",
)
@click.option("--from-file", is_flag=True, help="TOPIC is a file with one topic per line.")
@click.option(
    "--deleteSchema",
    "-d",
    "schema",
    is_flag=True,
    hidden=True,
    help="No effect: the schema is always deleted.",
)
@click.pass_obj
def delete(target: Target, topic: str, force: bool, regex: bool, from_file: bool, schema: bool) -> None:
    """Delete a topic with its subscriptions and messages, or many of them."""
    if regex and from_file:
        raise click.UsageError("give either --regex or --from-file")
    if not (regex or from_file):
        ask(target, "DELETE", topic_path(topic), query={"force": force or None})
        return
    names = _listed_in(topic) if from_file else _matching(target, topic)
    query = {"force": force or None}
    partitioned = _partitioned(target, names)

    def delete_one(name: str) -> None:
        ask(target, "DELETE", topic_path(name) + ("/partitions" * (name in partitioned)), query=query)

    one_by_one("topics deleted", names, delete_one)


def unload_bundles(target: Target, namespace: str, destination: str | None) -> None:
    """Unload a namespace, a bundle at a time."""
    path = namespace_path(namespace)
    found: dict[str, Any] = ask(target, "GET", f"{path}/bundles").value
    bounds = found["boundaries"]
    bundles = [f"{low}_{high}" for low, high in pairwise(bounds)]
    query = {"destinationBroker": destination}

    def unload_one(bundle: str) -> None:
        try:
            ask(target, "PUT", f"{path}/{quote(bundle, safe='')}/unload", query=query)
        except click.ClickException as error:
            if destination is None or f"is at {destination} already" not in error.message:
                raise

    one_by_one("bundles unloaded", bundles, unload_one)


def one_by_one(what: str, names: list[str], act: Callable[[str], object]) -> None:
    """Call `act` on each name, continue after failures, and list the failures at the end.

    Raises ClickException when any call failed, and immediately when no broker answers.
    """
    failed: list[str] = []
    with progress_bar(what, len(names)) as advance:
        for number, name in enumerate(names, 1):
            try:
                act(name)
            except NoBroker:
                raise
            except click.ClickException as error:
                failed.append(f"{name}: {error.message}")
            advance(number)
    click.echo(f"{len(names) - len(failed)} of {len(names)} {what}", err=True)
    if failed:
        raise click.ClickException("\n  ".join([f"{len(failed)} failed:", *failed]))


def _listed_in(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return list(dict.fromkeys(_topic(line).full for line in lines if line))


def _matching(target: Target, pattern: str) -> list[str]:
    """List topics; a partitioned topic appears once, under its own name."""
    domain, separator, rest = pattern.partition("://")
    if not separator:
        domain, rest = "persistent", pattern
    parts = rest.split("/", 2)
    if len(parts) != 3 or domain not in ("persistent", "non-persistent"):
        raise click.BadParameter(f"{pattern!r} must have the form persistent://tenant/namespace/expression")
    try:
        expression = re.compile(parts[2])
    except re.error as error:
        raise click.BadParameter(f"{parts[2]!r} is not a regular expression: {error}") from error
    path = namespace_path(f"{parts[0]}/{parts[1]}").replace("/namespaces/", f"/{domain}/", 1)
    listed = [_topic(name) for name in ask(target, "GET", path).value]
    names = [name for name in listed if name.partition_index < 0]
    names += [_topic(name) for name in ask(target, "GET", f"{path}/partitioned").value]
    return sorted({name.full for name in names if expression.fullmatch(name.local_name)})


def _partitioned(target: Target, names: Iterable[str]) -> set[str]:
    """Return the partitioned topics among the given ones."""
    found: set[str] = set()
    for domain, namespace in {(_topic(name).domain, _topic(name).namespace) for name in names}:
        found |= set(_partitioned_of(target, domain, namespace))
    return found


def _partitioned_of(target: Target, domain: str, namespace: NamespaceName) -> list[str]:
    path = namespace_path(str(namespace)).replace("/namespaces/", f"/{domain}/", 1)
    listed: list[str] = ask(target, "GET", f"{path}/partitioned").value
    return listed


def _topic(text: str) -> TopicName:
    """Raises BadParameter."""
    try:
        return TopicName.parse(text)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from error
