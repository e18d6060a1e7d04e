"""Credentials from the authentication options, in the forms of pulsar-admin and pulsar-client."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

_NONE: Final = "none"
_METHODS: Final = {
    "token": "token",
    "basic": "basic",
    "tls": "tls",
    "oauth2": "oauth2",
    "AuthenticationToken": "token",
    "AuthenticationBasic": "basic",
    "AuthenticationTls": "tls",
    "AuthenticationOAuth2": "oauth2",
    "AuthenticationDisabled": _NONE,
}
_WHERE: Final = "(--auth-params, or authParams of a client.conf)"


class NoCredentials(click.ClickException):
    """Credentials cannot be had now: a file cannot be read, or an issuer gives no token."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a command proves who it is."""

    method: str = ""
    """Method of the wire protocol: token, basic or tls; empty means not at all."""
    supply: Callable[[], bytes] = bytes
    """Gives the secret for a new connection: a token, or user:password. May block; raises OSError."""
    certificate_file: str = ""
    key_file: str = ""

    def http_headers(self) -> dict[str, str]:
        """Return headers of an HTTP request. May block for an issuer. Raises NoCredentials, UsageError."""
        if self.method not in ("token", "basic"):
            return {}
        try:
            secret = self.supply()
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            raise NoCredentials(f"{named}{error.strerror or error}") from error
        if self.method == "basic":
            return {"Authorization": f"Basic {base64.b64encode(secret).decode()}"}
        token = secret.decode(errors="replace")
        if not (token.isascii() and token.isprintable()):
            raise click.UsageError("the token has invalid characters, such as a line break")
        return {"Authorization": f"Bearer {token}"}


def credentials_of(token: str, auth_params: str, auth_plugin: str, certificate: str, key: str) -> Credentials:
    """Return the credentials that the options give; `token` alone means the token plug-in.

    A token's file is read here once, so that a wrong path is told at once. Raises UsageError.
    """
    method = _METHODS.get(auth_plugin.rpartition(".")[2], "") if auth_plugin else ""
    if auth_plugin and not method:
        raise click.UsageError(
            f"unknown authentication plugin {auth_plugin!r}: use token, basic, tls or oauth2 "
            "(--auth-plugin, or authPlugin of a client.conf)"
        )
    if token and method not in ("", "token"):
        raise click.UsageError(f"--token does not go with --auth-plugin {auth_plugin}; give --auth-params")
    if method == _NONE:
        return Credentials(certificate_file=certificate, key_file=key)
    if method == "basic":
        secret = _basic(auth_params)
        return Credentials("basic", lambda: secret, certificate, key)
    if method == "oauth2":
        return Credentials("token", _oauth2_supplier(auth_params), certificate, key)
    if method == "tls":
        given = _parameters(auth_params, "tls")
        certificate, key = given.get("tlsCertFile", certificate), given.get("tlsKeyFile", key)
        if not certificate or not key:
            raise click.UsageError(
                f"the tls plugin needs the parameters tlsCertFile:FILE,tlsKeyFile:FILE {_WHERE}, "
                "or --tls-cert-file and --tls-key-file"
            )
        return Credentials("tls", bytes, certificate, key)
    text = (token or auth_params).strip()
    if not text:
        if method:
            raise click.UsageError(
                f"the token plugin needs the parameter token:TEXT or file:///FILE {_WHERE}"
            )
        return Credentials(certificate_file=certificate, key_file=key)
    supply = _token_supplier(text)
    try:
        supply()
    except OSError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    return Credentials("token", supply, certificate, key)


def _token_supplier(text: str) -> Callable[[], bytes]:
    if not text.startswith("file:"):
        secret = text.removeprefix("token:").encode()
        return lambda: secret
    path = Path(text.removeprefix("file:").removeprefix("//"))
    return lambda: path.read_bytes().strip()


def _oauth2_supplier(text: str) -> Callable[[], bytes]:
    from magnetar.client.authentication.oauth2 import OAuth2Parameters, OAuth2Tokens

    if not text.strip().startswith("{"):
        raise click.UsageError(
            'the oauth2 plugin needs the parameters {"issuerUrl":"https://HOST","privateKey":"file:///FILE",'
            f'"audience":"TEXT"}} {_WHERE}'
        )
    try:
        parameters = OAuth2Parameters.parse(_parameters(text, "oauth2"))
    except ValueError as error:
        raise click.UsageError(f"parameters of the oauth2 plugin: {error} {_WHERE}") from error
    return OAuth2Tokens(parameters).supply


def _basic(text: str) -> bytes:
    if not text.startswith("{") and ":" in text:
        return text.encode()
    given = _parameters(text, "basic")
    if not given.get("userId") or "password" not in given:
        raise click.UsageError(
            'the basic plugin needs the parameters {"userId":"NAME","password":"TEXT"} or NAME:PASSWORD '
            f"{_WHERE}"
        )
    return f"{given['userId']}:{given['password']}".encode()


def _parameters(text: str, plugin: str) -> dict[str, str]:
    """Parameters as JSON or as NAME:VALUE,NAME:VALUE. Errors never repeat them: they may be secret."""
    text = text.strip()
    if text.startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise click.UsageError(
                f"the parameters of the {plugin} plugin are not valid JSON {_WHERE}"
            ) from error
        return {name: str(value) for name, value in found.items()}
    pairs = (each.partition(":") for each in text.split(","))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}
