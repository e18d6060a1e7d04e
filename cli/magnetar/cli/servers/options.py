"""Command-line options common to all services, and their execution."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from magnetar.common.obs.logs import LogFormat
    from magnetar.standalone.run import C
    from magnetar.standalone.service import Service

Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Values of the options of `service_options`."""

    files: tuple[Path, ...]
    overrides: tuple[str, ...]
    show: bool
    log_format: LogFormat
    log_level: str


_OPTIONS = (
    click.option(
        "--config",
        "files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="File of key=value settings, such as Pulsar's; later files override earlier ones.",
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting; overrides all other sources.",
    ),
    click.option(
        "--print-config", "show", is_flag=True, help="Print every setting with its source, then exit."
    ),
    click.option(
        "--log-format",
        type=click.Choice(["auto", "console", "json"]),
        default="auto",
        show_default=True,
        help="Log format; auto is console on a terminal, otherwise json.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Minimum log level.",
    ),
)


def service_options(command: Command) -> Command:
    """Add the options to a command, as keyword arguments for `ServiceOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_service(
    name: str,
    settings_class: type[C],
    make: Callable[[C], Service],
    given: dict[str, Any],
    log_fields: Mapping[str, object] | None = None,
) -> None:
    """Run the service or print its configuration, and end the process with the exit code.

    `log_fields` are added to every log line.
    """
    options = ServiceOptions(**given)
    if options.show:
        from magnetar.cli.servers.print_config import print_config

        sys.exit(print_config(name, settings_class, options.files, options.overrides))
    from magnetar.standalone.run import run

    sys.exit(
        run(
            settings_class,
            make,
            files=options.files,
            overrides=options.overrides,
            log_format=options.log_format,
            log_level=options.log_level,
            log_fields=log_fields,
        )
    )
