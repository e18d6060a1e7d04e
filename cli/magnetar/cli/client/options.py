"""Common options of commands that publish and consume: connection options and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from magnetar.cli.access_options import Access, access_options
from magnetar.common.errors import InvalidName

if TYPE_CHECKING:
    import asyncio

    from magnetar.client.client import Client
    from magnetar.client.options import ClientOptions

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--url",
        "--service-url",
        "-u",
        "url",
        envvar="MAGNETAR_SERVICE_URL",
        default="pulsar://localhost:6650",
        show_default=True,
        metavar="URL",
        help="Service URL: pulsar://HOST:PORT,... or pulsar+ssl://; also from MAGNETAR_SERVICE_URL.",
    ),
    click.option(
        "--listener-name", default="", metavar="NAME", help="Which of a broker's listeners is meant."
    ),
)


RECONNECT_S_MAX = 300.0
"""Time in seconds after which a command whose broker is gone ends."""


class CannotReach(click.ClickException):
    """No broker answers."""

    exit_code = 3


def client_options(command: Command) -> Command:
    """Add the options to a command, which passes them to `run_client` as keyword arguments."""
    command = access_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_client(given: dict[str, Any], work: Callable[[Client, asyncio.Event], Awaitable[int]]) -> NoReturn:
    """Run `work` with a client and end the process with its exit code; errors become one line.

    The first Ctrl-C sets the event; the second ends the process. Exit codes: 0 done, 1 the
    broker refused the request, 2 usage error, 3 no broker answers.
    """
    import asyncio
    import signal

    from magnetar.client.client import Client
    from magnetar.client.errors import (
        AuthenticationFailed,
        ClientError,
        ConnectionLost,
        ConsumerBusy,
        NoCredentials,
        OperationTimeout,
    )

    options = _settings(**given)

    async def run() -> int:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            stopped.set()
            loop.remove_signal_handler(signal.SIGINT)

        with suppress(ValueError):  # Only the main thread receives signals.
            loop.add_signal_handler(signal.SIGINT, stop)
        client = Client.with_options(options)
        try:
            return await work(client, stopped)
        finally:
            await client.close()

    try:
        sys.exit(_run(run))
    except NoCredentials as error:
        raise click.ClickException(str(error)) from error
    except ConnectionLost as error:
        raise CannotReach(str(error)) from error
    except ConsumerBusy as error:
        raise click.ClickException(f"{error} (--subscription-name, --subscription-type)") from error
    except AuthenticationFailed as error:
        raise click.ClickException(f"{error} (--token, --auth-plugin or --client-conf)") from error
    except OperationTimeout as error:
        raise click.ClickException(
            f"{error}; check brokers and bookies with `magnetar doctor --cluster-only`"
        ) from error
    except (ClientError, InvalidName) as error:
        raise click.ClickException(str(error)) from error


def _run(run: Callable[[], Any]) -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code: int = runner.run(run())
        return code


def _settings(url: str, listener_name: str, access: Access) -> ClientOptions:
    from magnetar.client.authentication.methods import Credentials
    from magnetar.client.options import ClientOptions, Tls

    given = access.credentials
    return ClientOptions(
        service_url=url,
        authentication=Credentials(given.method, given.supply) if given.method else None,
        tls=Tls(
            trust_certs_file=access.trust_certs_file,
            certificate_file=given.certificate_file,
            key_file=given.key_file,
            allow_insecure=access.allow_insecure,
            verify_hostname=access.verify_hostname,
        ),
        listener_name=listener_name,
        reconnect_timeout_s=RECONNECT_S_MAX,
    )
