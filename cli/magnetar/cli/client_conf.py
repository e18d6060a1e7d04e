"""Connection settings of commands in a file with the keys of Pulsar's client.conf, and profiles.

A profile is such a file: $XDG_CONFIG_HOME/magnetar/profiles/NAME.conf (~/.config without that variable), so
that Pulsar's own commands can read it, too.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

_TEXTS: Final = {
    "brokerServiceUrl": "service_url",
    "webServiceUrl": "admin_url",
    "authPlugin": "auth_plugin",
    "authParams": "auth_params",
    "tlsTrustCertsFilePath": "trust_certs_file",
    "tlsCertificateFilePath": "certificate_file",
    "tlsKeyFilePath": "key_file",
}
_SWITCHES: Final = {
    "tlsAllowInsecureConnection": "allow_insecure",
    "tlsEnableHostnameVerification": "verify_hostname",
}
_WITHOUT_EFFECT: Final = frozenset(
    {
        "cliShellExtensionsDirectory",
        "customCommandFactories",
        "memoryLimit",
        "proxyProtocol",
        "sslFactoryPlugin",
        "sslFactoryPluginParams",
        "tlsKeyStorePassword",
        "tlsKeyStorePath",
        "tlsKeyStoreType",
        "tlsProvider",
        "tlsTrustStorePassword",
        "tlsTrustStorePath",
        "tlsTrustStoreType",
        "webserviceTlsProvider",
    }
)
_REFUSED: Final = {
    "useKeyStoreTls": "key stores are not read: convert them to PEM files, and set tlsTrustCertsFilePath",
    "proxyServiceUrl": "proxies by server name are not used: set brokerServiceUrl to the proxy's own address",
}
"""Keys that change how a connection is secured or reached, and what to do instead."""

_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConf:
    """Settings of one file; empty texts and None are not set."""

    path: str = ""
    service_url: str = ""
    admin_url: str = ""
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    trust_certs_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    allow_insecure: bool | None = None
    verify_hostname: bool | None = None


def read_client_conf(path: Path) -> ClientConf:
    """Read a file. Raises UsageError for one that cannot be read or has a key or value that is not known."""
    from magnetar.common.config.loader import read_properties
    from magnetar.common.errors import ConfigError

    try:
        pairs = read_properties(path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    texts: dict[str, str] = {}
    switches: dict[str, bool] = {}
    for key, text in pairs.items():
        if not text or key in _WITHOUT_EFFECT:
            continue
        if key in _TEXTS:
            texts[_TEXTS[key]] = text
        elif key in _SWITCHES:
            switches[_SWITCHES[key]] = _boolean(text, f"{path}: {key}")
        elif key not in _REFUSED:
            raise click.UsageError(f"{path}: unknown key {key}{_nearest(key)}")
        elif text.lower() != "false":
            raise click.UsageError(f"{path}: {key}={text}: {_REFUSED[key]}")
    return ClientConf(path=str(path), **texts, **switches)  # type: ignore[arg-type]


def config_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory of the command's own files."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "magnetar"


def check_profile_name(name: str) -> None:
    """Raises UsageError for an invalid name."""
    if not _PROFILE.fullmatch(name):
        raise click.UsageError(f"invalid profile {name!r}; use letters, digits, '.', '_' and '-'")


def profile_path(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a profile. Raises UsageError for an invalid name or a missing file."""
    base = config_directory(environ) / "profiles"
    check_profile_name(name)
    path = base / f"{name}.conf"
    if not path.is_file():
        others = ", ".join(sorted(each.stem for each in base.glob("*.conf")))
        what_next = f"there are {others}" if others else "write a client.conf there"
        raise click.UsageError(f"no profile {name!r}: {path} does not exist; {what_next}")
    return path


def _boolean(text: str, where: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise click.UsageError(f"{where}={text} is neither true nor false")
    return text.lower() == "true"


def _nearest(key: str) -> str:
    found = difflib.get_close_matches(key, [*_TEXTS, *_SWITCHES, *_REFUSED], 1)
    return f"; did you mean {found[0]}?" if found else "; it needs the keys of Pulsar's client.conf"
