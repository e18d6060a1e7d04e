"""The options that every service has on the command line, and what is done with them."""

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
    """The values of the options of `service_options`."""

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
        help="A file of key=value settings; later ones win. A configuration file of Pulsar will do.",
    ),
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="One setting; wins over everything else.",
    ),
    click.option(
        "--print-config", "show", is_flag=True, help="Show every setting and where it came from, then exit."
    ),
    click.option(
        "--log-format",
        type=click.Choice(["auto", "console", "json"]),
        default="auto",
        show_default=True,
        help="How log lines look; auto is console on a terminal and json elsewhere.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Log this and what is worse.",
    ),
)


def service_options(command: Command) -> Command:
    """Add them to a command, which gets them as keyword arguments: those of `ServiceOptions`."""
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
    """Do what the options say and end the process with the exit code of that.

    `log_fields` are in every line of the log.
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
