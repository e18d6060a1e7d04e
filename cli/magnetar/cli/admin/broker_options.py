"""Options of commands that ask a broker over HTTP: where it is, and how its answer is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


ADMIN_URL: Final = click.option(
    "--admin-url",
    envvar="MAGNETAR_ADMIN_URL",
    default="http://localhost:8080",
    show_default=True,
    metavar="URL",
    help="HTTP URL of a broker, for tenants, namespaces and topics; also from MAGNETAR_ADMIN_URL.",
)

REQUEST_TIMEOUT: Final = click.option(
    "--request-timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Timeout of a request to a broker, in seconds.",
)


def broker_options(command: F) -> F:
    """Adds --admin-url, --output, --json and --request-timeout, as `admin_url`, `output`, `as_json` and
    `timeout_s`.
    """
    for option in reversed(
        (
            ADMIN_URL,
            click.option(
                "--output",
                type=click.Choice(["auto", "table", "plain", "json"]),
                default="auto",
                show_default=True,
                help="Output format; auto is a table on a terminal, otherwise tab-separated or JSON.",
            ),
            click.option(
                "--json",
                "as_json",
                is_flag=True,
                help="Same as --output json; accepted anywhere on the line.",
            ),
            REQUEST_TIMEOUT,
        )
    ):
        command = option(command)
    return command
