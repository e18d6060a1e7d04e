"""`magnetar admin schemas`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from magnetar.cli.admin.http_client import ask, show, topic_path

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

_TOPIC = click.argument("topic", metavar="persistent://tenant/namespace/topic")
_FILE = click.option(
    "--filename",
    "-f",
    "file",
    type=click.File("rb"),
    required=True,
    help='JSON: {"type": "AVRO", "schema": "...", "properties": {}}; - is standard input.',
)


def _path(topic: str) -> str:
    """Schemas are a topic's whichever its domain is."""
    parts = topic_path(topic).split("/")
    return "/".join(["/admin/v2/schemas", *parts[4:]])


def _posted(file: BinaryIO) -> Any:
    try:
        return json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{getattr(file, 'name', 'it')} is not JSON: {error}") from error


@click.group()
def schemas() -> None:
    """Schemas of topics."""


@schemas.command()
@_TOPIC
@click.option("--version", "-v", type=int, default=None, help="Of this version; else the latest.")
@click.option("--all-version", "-a", "every", is_flag=True, help="Every version.")
@click.pass_obj
def get(target: Target, topic: str, version: int | None, every: bool) -> None:
    """The schema of a topic."""
    if every and version is not None:
        raise click.UsageError("give either --version or --all-version")
    path = f"{_path(topic)}/schema" if version is None else f"{_path(topic)}/schema/{version}"
    if every:
        found = ask(target, "GET", f"{_path(topic)}/schemas").value["getSchemaResponses"]
    else:
        found = ask(target, "GET", path).value
    show(target, f"Schema of {topic}", found)


@schemas.command()
@_TOPIC
@click.option("--force", "-f", is_flag=True, help="Messages lose theirs, too.")
@click.pass_obj
def delete(target: Target, topic: str, force: bool) -> None:
    """Delete the schemas of a topic; messages keep those of their versions."""
    ask(target, "DELETE", f"{_path(topic)}/schema", query={"force": force or None})


@schemas.command()
@_TOPIC
@_FILE
@click.pass_obj
def upload(target: Target, topic: str, file: BinaryIO) -> None:
    """Store a schema; shows its version."""
    value = ask(target, "POST", f"{_path(topic)}/schema", _posted(file)).value
    show(target, f"Schema of {topic}", value["version"])


@schemas.command()
@_TOPIC
@_FILE
@click.pass_obj
def compatibility(target: Target, topic: str, file: BinaryIO) -> None:
    """Whether a schema could be the next one of a topic."""
    value = ask(target, "POST", f"{_path(topic)}/compatibility", _posted(file)).value
    show(target, f"Compatibility with {topic}", value)


@schemas.command()
@_TOPIC
@click.pass_obj
def metadata(target: Target, topic: str) -> None:
    """Which versions of its schema a topic has."""
    show(target, f"Schemas of {topic}", ask(target, "GET", f"{_path(topic)}/metadata").value)
