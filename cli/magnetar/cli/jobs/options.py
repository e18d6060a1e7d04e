"""Common options of commands that magnetar-spark executes, and how they are passed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Command], Command]

SERVICE: Final = click.option(
    "--service",
    envvar="MAGNETAR_OFFLOAD_SERVICE",
    default="127.0.0.1:6750",
    show_default=True,
    metavar="HOST:PORT",
    help="magnetarControlPort of a broker or a standalone; also from MAGNETAR_OFFLOAD_SERVICE.",
)

OF_SPARK: Final = (
    click.option(
        "--master",
        default="",
        metavar="URL",
        help="Of Spark: local[N], or a cluster's, for which spark-submit is run. Default: all cores here.",
    ),
    click.option(
        "--deploy-mode",
        default="",
        type=click.Choice(["", "client", "cluster"]),
        help="Of spark-submit, where the driver runs; default: client.",
    ),
    click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; repeat it for several."
    ),
    click.option("--bookie-trust-certs", default="", metavar="FILE", help="TLS to bookies: PEM, trusted."),
    click.option("--bookie-certificate", default="", metavar="FILE", help="TLS to bookies: PEM, the job's."),
    click.option("--bookie-key", default="", metavar="FILE", help="TLS to bookies: PEM, the job's."),
    click.option(
        "--bookie-server-name", default="", metavar="NAME", help="TLS to bookies: in their certificates."
    ),
)


def topics(*, required: bool) -> Option[Any]:
    """--topic, any number of times."""
    return click.option(
        "--topic",
        "-t",
        multiple=True,
        required=required,
        metavar="NAME",
        help="A topic, all of its partitions if it has some; repeat it for several.",
    )


def as_json(what: str) -> Option[Any]:
    """--json; `what` says what is printed then."""
    return click.option("--json", "json", is_flag=True, help=what)


def with_options(*options: Option[Any]) -> Option[Command]:
    """All of them, in the order in which --help has them."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def arguments_of(given: dict[str, Any]) -> list[str]:
    """The options as they are passed on: those that say something."""
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
