"""`magnetar admin schemas`."""

from __future__ import annotations

import json
from pathlib import Path
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
    """Return the REST path of a topic's schemas, which ignores the topic's domain."""
    parts = topic_path(topic).split("/")
    return "/".join(["/admin/v2/schemas", *parts[4:]])


def _posted(file: BinaryIO) -> Any:
    try:
        return json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{getattr(file, 'name', 'it')} is not JSON: {error}") from error


@click.group()
def schemas() -> None:
    """Manage the schemas of topics."""


@schemas.command()
@_TOPIC
@click.option("--version", "-v", type=int, default=None, help="Schema version; default: the latest.")
@click.option("--all-version", "-a", "every", is_flag=True, help="Show all versions.")
@click.pass_obj
def get(target: Target, topic: str, version: int | None, every: bool) -> None:
    """Show the schema of a topic."""
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
@click.option("--force", "-f", is_flag=True, help="Delete permanently; existing messages lose their schema.")
@click.pass_obj
def delete(target: Target, topic: str, force: bool) -> None:
    """Delete the schema of a topic; existing messages keep their schema versions."""
    ask(target, "DELETE", f"{_path(topic)}/schema", query={"force": force or None})


@schemas.command()
@_TOPIC
@_FILE
@click.pass_obj
def upload(target: Target, topic: str, file: BinaryIO) -> None:
    """Upload a schema and show its version."""
    value = ask(target, "POST", f"{_path(topic)}/schema", _posted(file)).value
    show(target, f"Schema of {topic}", value["version"])


@schemas.command()
@_TOPIC
@_FILE
@click.pass_obj
@click.pass_context
def compatibility(context: click.Context, target: Target, topic: str, file: BinaryIO) -> None:
    """Check whether a topic would take a schema; exit with 1 when it would not."""
    value = ask(target, "POST", f"{_path(topic)}/compatibility", _posted(file)).value
    show(target, f"Compatibility with {topic}", value)
    if not value["compatibility"]:
        context.exit(1)


@schemas.command()
@_TOPIC
@click.option(
    "--classname",
    "-c",
    default="",
    help="Python class as MODULE:CLASS: a dataclass, or one with a class method schema().",
)
@click.option(
    "--path",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Directory to import the module from; default: the current one.",
)
@click.option(
    "--type",
    "-t",
    "kind",
    type=click.Choice(["avro", "json"], case_sensitive=False),
    default="avro",
    help="Schema type of a class.",
)
@click.option("--descriptor", type=click.File("rb"), default=None, help="File descriptor set, from protoc.")
@click.option("--message", default="", help="Full name of a message in the file descriptor set.")
@click.option("--dry-run", "-n", is_flag=True, help="Print the schema and do not upload it.")
@click.pass_obj
def extract(
    target: Target,
    topic: str,
    classname: str,
    directory: Path,
    kind: str,
    descriptor: BinaryIO | None,
    message: str,
    dry_run: bool,
) -> None:
    """Extract a schema from a Python class or a Protobuf message, and upload it."""
    if bool(classname) == bool(descriptor) or bool(descriptor) != bool(message):
        raise click.UsageError("give either --classname, or --descriptor and --message")
    from magnetar.cli.admin.schema_extraction import NotExtracted, avro_definition, protobuf_definition

    body: dict[str, Any]
    try:
        if descriptor is None:
            body = {"type": kind.upper(), "schema": avro_definition(classname, directory.resolve())}
        else:
            body = {"type": "PROTOBUF_NATIVE", "schema": protobuf_definition(descriptor.read(), message)}
    except NotExtracted as error:
        raise click.UsageError(str(error)) from error
    body["properties"] = {}
    if dry_run:
        show(target, f"Schema for {topic}", body)
        return
    value = ask(target, "POST", f"{_path(topic)}/schema", body).value
    show(target, f"Schema of {topic}", value["version"])


@schemas.command()
@_TOPIC
@click.pass_obj
def metadata(target: Target, topic: str) -> None:
    """List the schema versions of a topic."""
    show(target, f"Schemas of {topic}", ask(target, "GET", f"{_path(topic)}/metadata").value)
