"""Options of commands that reach brokers: credentials, TLS, and the file or profile that has them.

Sources, the first that has a value counts: options; the file of --client-conf or --profile; environment; the
file of MAGNETAR_CLIENT_CONF or MAGNETAR_PROFILE; the current context; defaults. A file named by an option
switches the environment off, and a URL or a variable the current context, so that a token of one service is
never sent to another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource
from magnetar.cli.client_conf import ClientConf, profile_path, read_client_conf
from magnetar.cli.contexts import in_effect
from magnetar.cli.credentials import Credentials, credentials_of

if TYPE_CHECKING:
    from magnetar.common.security.tls.client_context import ClientFiles

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--client-conf",
        envvar="MAGNETAR_CLIENT_CONF",
        default="",
        metavar="FILE",
        help="File with URLs, credentials and TLS by the keys of Pulsar's client.conf; also from "
        "MAGNETAR_CLIENT_CONF.",
    ),
    click.option(
        "--profile",
        envvar="MAGNETAR_PROFILE",
        default="",
        metavar="NAME",
        help="Such a file by its name in ~/.config/magnetar/profiles: NAME.conf; also from MAGNETAR_PROFILE.",
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
        help="Parameters of the plugin, as for pulsar-admin: token:TEXT, file:///FILE, NAME:PASSWORD, JSON.",
    ),
    click.option(
        "--auth-plugin",
        default="",
        metavar="NAME",
        help="Authentication plugin: token, basic, tls, oauth2, or the name of Pulsar's class for it.",
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
        "--tls-enable-hostname-verification/--no-tls-enable-hostname-verification",
        "verify_hostname",
        default=True,
        help="Check that the server's certificate names its host; on by default.",
    ),
    click.option(
        "--tls-certificate",
        "--tls-cert-file",
        "certificate_file",
        default="",
        metavar="FILE",
        help="Client certificate (PEM), with its chain.",
    ),
    click.option(
        "--tls-key",
        "--tls-key-file",
        "key_file",
        default="",
        metavar="FILE",
        help="Private key of the client certificate (PEM).",
    ),
)

_URLS: Final = {"url": "service_url", "service_url": "service_url", "admin_url": "admin_url"}
"""Fields of ClientConf by the names that commands give their options for URLs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Credentials and TLS of a command's connections to brokers."""

    credentials: Credentials = field(default_factory=Credentials)
    trust_certs_file: str = ""
    allow_insecure: bool = False
    verify_hostname: bool = True
    conf_file: str = ""
    """The file that --client-conf, --profile or the environment named, or that of the current context; empty:
    none.
    """

    @property
    def has_tls_settings(self) -> bool:
        """Return whether TLS differs from the system's defaults."""
        shown = self.credentials.certificate_file
        return bool(self.trust_certs_file or shown or self.allow_insecure or not self.verify_hostname)

    def files(self) -> ClientFiles:
        """Return the same as files of a TLS context."""
        from magnetar.common.security.tls.client_context import ClientFiles

        return ClientFiles(
            trust_certs=self.trust_certs_file,
            certificate=self.credentials.certificate_file,
            key=self.credentials.key_file,
            allow_insecure=self.allow_insecure,
            verify_hostname=self.verify_hostname,
        )


def access_options(command: Command) -> Command:
    """Add the options to a command, which gets `access`; its options for URLs may come from the file."""

    @wraps(command)
    def with_access(*args: Any, client_conf: str, profile: str, **given: Any) -> Any:
        context = click.get_current_context()
        conf, by_option = _conf(context, client_conf, profile)

        def chosen(name: str, of_conf: Any) -> Any:
            return _chosen(context, name, given.pop(name), of_conf, by_option=by_option)

        for name in ("trust_certs_file", "certificate_file", "key_file"):
            _check_file(context, name, given[name])
        urls = {name: chosen(name, getattr(conf, key)) for name, key in _URLS.items() if name in given}
        token = chosen("token", "")
        plugin = chosen("auth_plugin", "" if token else conf.auth_plugin)
        own_params = token or context.get_parameter_source("auth_plugin") is ParameterSource.COMMANDLINE
        access = Access(
            trust_certs_file=chosen("trust_certs_file", conf.trust_certs_file),
            allow_insecure=chosen("allow_insecure", conf.allow_insecure),
            verify_hostname=chosen("verify_hostname", conf.verify_hostname),
            conf_file=conf.path,
            credentials=credentials_of(
                token,
                chosen("auth_params", "" if own_params else conf.auth_params),
                plugin,
                chosen("certificate_file", conf.certificate_file),
                chosen("key_file", conf.key_file),
            ),
        )
        return command(*args, access=access, **urls, **given)

    for option in reversed(_OPTIONS):
        with_access = option(with_access)
    return cast("Command", with_access)


def _check_file(context: click.Context, name: str, path: str) -> None:
    """Raises BadParameter for a file of the command line that cannot be read, also where no TLS is used."""
    if not path or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return
    (option,) = (each for each in context.command.params if each.name == name)
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", context, option) from error


def _conf(context: click.Context, client_conf: str, profile: str) -> tuple[ClientConf, bool]:
    """Return the settings of the named file, and whether an option named it. Raises UsageError."""
    by_option = [
        name
        for name in ("client_conf", "profile")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if by_option == ["client_conf"]:
        profile = ""
    elif by_option == ["profile"]:
        client_conf = ""
    if client_conf and profile:
        names = "--client-conf and --profile" if by_option else "MAGNETAR_CLIENT_CONF and MAGNETAR_PROFILE"
        raise click.UsageError(f"{names} exclude each other: name one file")
    if profile:
        return read_client_conf(profile_path(profile)), bool(by_option)
    if client_conf:
        return read_client_conf(Path(client_conf)), bool(by_option)
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in _URLS):
        return ClientConf(), False
    path = in_effect()
    return (ClientConf() if path is None else read_client_conf(path)), False


def _chosen(context: click.Context, name: str, given: Any, of_conf: Any, *, by_option: bool) -> Any:
    """Return an option's value by the order of sources. `of_conf`: the file's value; None or "": none."""
    source = context.get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE or (source is ParameterSource.ENVIRONMENT and not by_option):
        return given
    if of_conf not in (None, ""):
        return of_conf
    if source is not ParameterSource.ENVIRONMENT:
        return given
    (option,) = (each for each in context.command.params if each.name == name)
    return option.get_default(context)
