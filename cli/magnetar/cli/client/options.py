"""Common options of commands that publish and consume: connection options and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from magnetar.cli.credentials import credentials_of
from magnetar.common.errors import InvalidName

if TYPE_CHECKING:
    import asyncio

    from magnetar.client.client import Client, ClientOptions

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
        "--token",
        envvar="MAGNETAR_TOKEN",
        default="",
        metavar="TEXT",
        help="Authentication token, or file:PATH; also from MAGNETAR_TOKEN.",
    ),
    click.option(
        "--auth-params",
        default="",
        metavar="TEXT",
        help="What the plugin needs, as for pulsar-client: token:TEXT, file:///FILE, NAME:PASSWORD, JSON.",
    ),
    click.option(
        "--auth-plugin",
        default="",
        metavar="NAME",
        help="Authentication plugin: token, basic, tls, or the name of Pulsar's class for it.",
    ),
    click.option(
        "--tls-trust-cert-path",
        "--tlsTrustCertsFilePath",
        "trust_certs_file",
        default="",
        metavar="FILE",
        help="Trusted CA certificates (PEM file), instead of the system's.",
    ),
    click.option(
        "--tls-allow-insecure", "allow_insecure", is_flag=True, help="Accept any server certificate."
    ),
    click.option(
        "--tls-certificate",
        "--tls-cert-file",
        "certificate_file",
        default="",
        metavar="FILE",
        help="A certificate (PEM) to be known by, with its chain.",
    ),
    click.option(
        "--tls-key", "--tls-key-file", "key_file", default="", metavar="FILE", help="The key (PEM) of it."
    ),
    click.option(
        "--listener-name", default="", metavar="NAME", help="Which of a broker's listeners is meant."
    ),
)


class CannotReach(click.ClickException):
    """No broker answers."""

    exit_code = 3


def client_options(command: Command) -> Command:
    """Add the options to a command, which passes them to `run_client` as keyword arguments."""
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
    from magnetar.client.errors import ClientError, ConnectionLost

    options = _settings(**given)

    async def run() -> int:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            stopped.set()
            loop.remove_signal_handler(signal.SIGINT)

        with suppress(ValueError):  # Only the main thread receives signals.
            loop.add_signal_handler(signal.SIGINT, stop)
        client = Client(options)
        try:
            return await work(client, stopped)
        finally:
            await client.close()

    try:
        sys.exit(_run(run))
    except ConnectionLost as error:
        raise CannotReach(str(error)) from error
    except (ClientError, InvalidName) as error:
        raise click.ClickException(str(error)) from error


def _run(run: Callable[[], Any]) -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code: int = runner.run(run())
        return code


def _settings(
    url: str,
    token: str,
    auth_params: str,
    auth_plugin: str,
    trust_certs_file: str,
    allow_insecure: bool,
    certificate_file: str,
    key_file: str,
    listener_name: str,
) -> ClientOptions:
    from magnetar.client.client import ClientOptions

    found = credentials_of(token, auth_params, auth_plugin, certificate_file, key_file)
    return ClientOptions(
        service_url=url,
        auth_method=found.method,
        auth_data=found.supply,
        trust_certs_file=trust_certs_file,
        allow_insecure=allow_insecure,
        certificate_file=found.certificate_file,
        key_file=found.key_file,
        listener_name=listener_name,
    )
