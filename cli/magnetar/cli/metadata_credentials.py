"""TLS and credentials of commands towards etcd: options, or the environment variables of services."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

if TYPE_CHECKING:  # it imports gRPC
    from magnetar.common.metadata.etcd_access import EtcdAccess

Command = TypeVar("Command", bound=Callable[..., Any])

_REFRESH_S: Final = 60.0

_OPTIONS: Final = (
    ("metadata_trust_certs", "FILE", "TlsTrustCertsFilePath", "Trusted CA certificates for etcd (PEM file)"),
    ("metadata_cert", "FILE", "TlsCertificateFilePath", "Client certificate for etcd (PEM file)"),
    ("metadata_key", "FILE", "TlsKeyFilePath", "Private key of --metadata-cert (PEM file)"),
    ("metadata_user", "NAME", "User", "User of etcd, where no client certificate names one"),
    ("metadata_password_file", "FILE", "PasswordFile", "File whose first line is that user's password"),
)
"""Options: parameter, placeholder, end of the setting's key after magnetarMetadata, and help."""


def metadata_options(command: Command) -> Command:
    """Add the options to a command, which gets `metadata_settings`, for `metadata_access`."""

    @wraps(command)
    def with_settings(*args: Any, **given: Any) -> Any:
        values = {key: given.pop(name) for name, _, key, _ in _OPTIONS}
        settings = tuple(f"magnetarMetadata{key}={value}" for key, value in values.items() if value)
        return command(*args, metadata_settings=settings, **given)

    for name, placeholder, key, purpose in reversed(_OPTIONS):
        with_settings = click.option(
            f"--{name.replace('_', '-')}",
            default="",
            metavar=placeholder,
            help=f"{purpose}; also from MAGNETAR_MAGNETAR_METADATA_{_variable(key)}.",
        )(with_settings)
    return cast("Command", with_settings)


def metadata_access(url: str, settings: Sequence[str] = ()) -> EtcdAccess | None:
    """How the store at `url` is reached, by `settings` and magnetarMetadata... of the environment.

    None without either. Raises ConfigError for settings that contradict each other or the URL.
    """
    from magnetar.common.config.loader import ENVIRONMENT_PREFIX, load
    from magnetar.common.errors import ConfigError
    from magnetar.common.security.services.config import MetadataAccessConfig

    prefix = f"{ENVIRONMENT_PREFIX}magnetarMetadata".lower().replace("_", "")
    told = {
        name: value for name, value in os.environ.items() if name.lower().replace("_", "").startswith(prefix)
    }
    config = load(MetadataAccessConfig, environ=told, overrides=settings).value
    if problems := config.problems(url):
        raise ConfigError("; ".join(problems))
    return config.access(url, _REFRESH_S)


def _variable(key: str) -> str:
    return "".join(f"_{each}" if each.isupper() else each for each in key).strip("_").upper()
