"""`magnetar debug bundle`: one archive with what is needed to find out what a cluster does."""

from __future__ import annotations

import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.cli.admin.broker_options import broker_options

if TYPE_CHECKING:
    from magnetar.cli.admin.target import Target

PART_S_MAX: Final = 15.0
"""Time limit of one request, in seconds."""


@click.group()
def debug() -> None:
    """Collect what is needed to find out what a cluster does."""


@debug.command()
@click.option(
    "--file",
    "-f",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Archive to write; default: magnetar-debug-TIME.tar.gz in the working directory.",
)
@click.option(
    "--log",
    "logs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Log file whose end is included; repeat for several.",
)
@click.option(
    "--time-limit",
    "limit_s",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds for all requests together; parts that are left over are named in the manifest.",
)
@broker_options
@access_options
def bundle(
    path: Path | None,
    logs: tuple[Path, ...],
    limit_s: float,
    admin_url: str,
    output: str,
    as_json: bool,
    timeout_s: float,
    access: Access,
) -> None:
    """Write an archive with versions, settings without secrets, metrics, statistics and explanations.

    It needs no broker: parts that nothing answers are named in manifest.json.
    """
    from magnetar.cli.admin.explain import own_path
    from magnetar.cli.admin.http_client import ask, subscription_path
    from magnetar.cli.admin.target import broker_target
    from magnetar.cli.debug.bundle import Bundle, collect

    now = datetime.now(UTC)
    path = path or Path(f"magnetar-debug-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise click.UsageError(f"{path} already exists; name another file with --file")
    target = broker_target(admin_url, access, timeout_s)
    found = Bundle(_secrets(access), time.monotonic() + limit_s)

    def get(asked: str, remaining_s: float) -> Any:
        return ask(_within(target, min(remaining_s, PART_S_MAX, timeout_s)), "GET", asked).value

    def explain_path(topic: str, subscription: str) -> str:
        return f"{own_path(subscription_path(topic, subscription))}/explain"

    for name in collect(found, get, explain_path):
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{name}", nl=False, err=True)
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    for log in logs:
        found.add_log(log)
    found.add("client/versions.json", _versions())
    facts = {
        "createdAt": now.isoformat(timespec="seconds"),
        "adminUrl": admin_url,
        "settingsFile": access.conf_file,
        "environment": sorted(name for name in os.environ if name.startswith("MAGNETAR_")),
    }
    try:
        found.write(path, facts, now.timestamp())
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"{path}: {len(found.files)} files, {path.stat().st_size:,} bytes")
    if found.failures:
        click.echo(f"{len(found.failures)} parts are missing; manifest.json in it says why", err=True)


def _within(target: Target, timeout_s: float) -> Target:
    from dataclasses import replace

    return replace(target, timeout_s=max(timeout_s, 0.1))


def _secrets(access: Access) -> list[str]:
    """Returns the secrets of this command's own credentials, which errors or logs may repeat."""
    if access.credentials.method not in ("token", "basic"):
        return []
    try:
        secret = access.credentials.supply().decode(errors="replace").strip()
    except (OSError, click.ClickException):  # The requests fail likewise, and say so.
        return []
    return [secret, secret.partition(":")[2]] if access.credentials.method == "basic" else [secret]


def _versions() -> dict[str, Any]:
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted((each.metadata["Name"], each.version) for each in distributions())),
    }
