"""Common options of commands that magnetar-spark executes, and their conversion to arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]


def _tls(name: str, metavar: str, text: str) -> Option[Any]:
    """An option of TLS, under its earlier name and from its variable, too."""
    variable = f"MAGNETAR_OFFLOAD_{name.replace('-', '_').upper()}"
    return click.option(
        f"--service-{name}",
        f"--bookie-{name}",
        envvar=variable,
        default="",
        metavar=metavar,
        help=f"{text}; also from {variable}.",
    )


SERVICE: Final = (
    click.option(
        "--service",
        envvar="MAGNETAR_OFFLOAD_SERVICE",
        default="127.0.0.1:6750",
        show_default=True,
        metavar="HOST:PORT",
        help="HOST:PORT of a broker's or standalone's magnetarControlPort, or grpcs://HOST:PORT where it has "
        "mutual TLS; also from MAGNETAR_OFFLOAD_SERVICE.",
    ),
    _tls("trust-certs", "FILE", "Authority of services (PEM file); turns on TLS to bookies"),
    _tls("certificate", "FILE", "The job's certificate for brokers and bookies (PEM file)"),
    _tls("key", "FILE", "Its key (PEM file)"),
    _tls("server-name", "NAME", "Name in services' certificates, where it is not the host of their address"),
)

OF_SPARK: Final = (
    click.option(
        "--master",
        default="",
        metavar="URL",
        help="Spark master: local[N], or a cluster's, which uses spark-submit. Default: all local cores.",
    ),
    click.option(
        "--deploy-mode",
        default="",
        type=click.Choice(["", "client", "cluster"]),
        help="Deploy mode of spark-submit, where the driver runs; default: client.",
    ),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; repeat for several."),
)


def topics(*, required: bool) -> Option[Any]:
    """Return the repeatable option --topic."""
    return click.option(
        "--topic",
        "-t",
        multiple=True,
        required=required,
        metavar="NAME",
        help="Topic, with all of its partitions; repeat for several.",
    )


def as_json(what: str) -> Option[Any]:
    """Return the option --json; `what` is its help text."""
    return click.option("--json", "json", is_flag=True, help=what)


def with_options(*options: Option[Any]) -> Option[Command]:
    """Add all options, in the order of --help."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def arguments_of(given: dict[str, Any]) -> list[str]:
    """Return the given options as arguments for magnetar-spark."""
    arguments: list[str] = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif isinstance(value, tuple):
            for each in value:
                arguments += [option, each]
        elif value not in (None, False, ""):
            arguments += [option, str(value)]
    return arguments
