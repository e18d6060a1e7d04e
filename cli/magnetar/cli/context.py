"""`magnetar context`: named clusters with their URLs and credentials, one of which is the current one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from magnetar.cli import contexts
from magnetar.cli.client_conf import ClientConf, profile_path, read_client_conf
from magnetar.cli.credentials import credentials_of

HIDDEN: Final = "(hidden)"

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def context() -> None:
    """Manage named clusters, and choose the one that commands reach without further options.

    A context is a profile: --profile NAME reaches it, too.
    """


def _option(*names: str, help: str, metavar: str = "FILE") -> Callable[[Command], Command]:
    return click.option(*names, default="", metavar=metavar, help=help)


@context.command()
@click.argument("name")
@_option("--url", "--service-url", "-u", "service_url", metavar="URL", help="Service URL for clients.")
@_option("--admin-url", metavar="URL", help="HTTP URL of a broker, or of a discovery service.")
@_option("--token", metavar="TEXT", help="Token, better file:PATH, which is read again for each connection.")
@_option("--auth-plugin", metavar="NAME", help="Authentication plugin: token, basic, tls or oauth2.")
@_option("--auth-params", metavar="TEXT", help="Parameters of the plugin.")
@_option("--tls-trust-cert-path", "trust", help="Trusted CA certificates (PEM file).")
@_option("--tls-certificate", "--tls-cert-file", "certificate", help="Client certificate (PEM).")
@_option("--tls-key", "--tls-key-file", "key", help="Private key of the client certificate (PEM).")
@click.option("--tls-allow-insecure", is_flag=True, help="Accept any server certificate.")
@click.option("--use", is_flag=True, help="Make it the current context.")
@click.option("--force", is_flag=True, help="Replace a context of that name.")
def add(
    name: str,
    service_url: str,
    admin_url: str,
    token: str,
    auth_plugin: str,
    auth_params: str,
    trust: str,
    certificate: str,
    key: str,
    tls_allow_insecure: bool,
    use: bool,
    force: bool,
) -> None:
    """Add a cluster. Files are named, not copied."""
    if not service_url and not admin_url:
        raise click.UsageError("a context has an address: give --url, --admin-url or both")
    if name in contexts.names() and not force:
        raise click.UsageError(f"context {name!r} already exists; replace it with --force")
    if token and auth_params:
        raise click.UsageError("--token and --auth-params exclude each other")
    credentials_of(token, auth_params, auth_plugin, certificate, key)
    settings = {
        "brokerServiceUrl": service_url,
        "webServiceUrl": admin_url,
        "authPlugin": auth_plugin or ("token" if token else ""),
        "authParams": auth_params or token,
        "tlsTrustCertsFilePath": trust,
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsAllowInsecureConnection": "true" if tls_allow_insecure else "",
    }
    try:
        path = contexts.write(name, {key: value for key, value in settings.items() if value})
        read_client_conf(path)
        if use:
            contexts.choose(name)
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
    following = "" if use else f"; `magnetar context use {name}` makes it the current one"
    click.echo(f"context {name} is in {path}{following}")


@context.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print the contexts as JSON.")
def list_contexts(as_json: bool) -> None:
    """List all contexts; a star marks the current one."""
    now = contexts.current()
    rows = []
    for name in contexts.names():
        try:
            conf = read_client_conf(profile_path(name))
            rows.append((name, conf.service_url, conf.admin_url, ""))
        except click.ClickException as error:
            rows.append((name, "", "", error.format_message()))
    if as_json:
        keys = ("name", "serviceUrl", "adminUrl", "error")
        found = [dict(zip(keys, row, strict=True)) | {"current": row[0] == now} for row in rows]
        click.echo(json.dumps(found, indent=2))
        return
    for name, service_url, admin_url, error_text in rows:
        mark = "*" if name == now else " "
        click.echo(f"{mark} {name}\t{service_url}\t{admin_url}{error_text}".rstrip())
    if not rows:
        click.echo("no contexts; `magnetar context add NAME --admin-url URL` adds one", err=True)
    variable = contexts.overriding_variable()
    if now and variable:
        click.echo(f"{variable} is set, so the current context has no effect", err=True)


@context.command()
@click.argument("name", required=False)
@click.option("--none", "nothing", is_flag=True, help="Leave no context the current one.")
def use(name: str | None, nothing: bool) -> None:
    """Make a context the current one."""
    if (name is None) != nothing:
        raise click.UsageError("give a name, or --none; `magnetar context list` shows all names")
    try:
        contexts.choose(name or "")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
    click.echo(f"commands reach {name}" if name else "commands reach their default addresses")
    variable = contexts.overriding_variable()
    if name and variable:
        click.echo(f"{variable} is set and goes first: unset it", err=True)


@context.command()
@click.argument("name", required=False)
def show(name: str | None) -> None:
    """Show a context, by default the current one, without its secrets."""
    name = name or contexts.current()
    if not name:
        raise click.ClickException("no current context; `magnetar context use NAME` chooses one")
    for key, value in shown(read_client_conf(profile_path(name))).items():
        click.echo(f"{key}\t{value}")


def shown(conf: ClientConf) -> dict[str, str]:
    """Returns the settings of a file by the keys of client.conf; of credentials only names of files."""
    params = conf.auth_params
    file = params.startswith("file:") and params.isprintable()
    found = {
        "file": conf.path,
        "brokerServiceUrl": conf.service_url,
        "webServiceUrl": conf.admin_url,
        "authPlugin": conf.auth_plugin,
        "authParams": params if file or not params else HIDDEN,
        "tlsTrustCertsFilePath": conf.trust_certs_file,
        "tlsCertificateFilePath": conf.certificate_file,
        "tlsKeyFilePath": conf.key_file,
        "tlsAllowInsecureConnection": "true" if conf.allow_insecure else "",
    }
    return {key: value for key, value in found.items() if value}


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a context."""
    try:
        was_current = contexts.remove(name)
    except OSError as error:
        raise click.ClickException(f"cannot remove {error.filename}: {error.strerror}") from error
    click.echo(f"context {name} removed" + ("; no context is the current one now" if was_current else ""))
