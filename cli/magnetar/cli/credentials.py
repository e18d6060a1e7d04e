"""Credentials from the authentication options, in the forms of pulsar-admin and pulsar-client."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

_METHODS: Final = {
    "token": "token",
    "basic": "basic",
    "tls": "tls",
    "AuthenticationToken": "token",
    "AuthenticationBasic": "basic",
    "AuthenticationTls": "tls",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a command proves who it is."""

    method: str = ""
    """token, basic or tls; empty means not at all."""
    supply: Callable[[], bytes] = bytes
    """Gives the secret for a new connection: a token, or user:password. Raises OSError for its file."""
    certificate_file: str = ""
    key_file: str = ""


def credentials_of(token: str, auth_params: str, auth_plugin: str, certificate: str, key: str) -> Credentials:
    """Return the credentials that the options give; `token` alone means the token plug-in.

    A token's file is read here once, so that a wrong path is told at once. Raises UsageError.
    """
    method = _METHODS.get(auth_plugin.rpartition(".")[2], "") if auth_plugin else ""
    if auth_plugin and not method:
        raise click.UsageError(f"unknown --auth-plugin {auth_plugin!r}: use token, basic or tls")
    if token and method not in ("", "token"):
        raise click.UsageError(f"--token does not go with --auth-plugin {auth_plugin}; give --auth-params")
    if method == "basic":
        secret = _basic(auth_params)
        return Credentials("basic", lambda: secret, certificate, key)
    if method == "tls":
        given = _parameters(auth_params, "AuthenticationTls")
        certificate, key = given.get("tlsCertFile", certificate), given.get("tlsKeyFile", key)
        if not certificate or not key:
            raise click.UsageError(
                "--auth-plugin tls needs --auth-params tlsCertFile:FILE,tlsKeyFile:FILE, "
                "or --tls-cert-file and --tls-key-file"
            )
        return Credentials("tls", bytes, certificate, key)
    text = (token or auth_params).strip()
    if not text:
        if method:
            raise click.UsageError("--auth-plugin token needs --auth-params token:TEXT or file:///FILE")
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


def _basic(text: str) -> bytes:
    if not text.startswith("{") and ":" in text:
        return text.encode()
    given = _parameters(text, "AuthenticationBasic")
    if not given.get("userId") or "password" not in given:
        raise click.UsageError(
            '--auth-plugin basic needs --auth-params {"userId":"NAME","password":"TEXT"} or NAME:PASSWORD'
        )
    return f"{given['userId']}:{given['password']}".encode()


def _parameters(text: str, plugin: str) -> dict[str, str]:
    """Parameters as JSON or as NAME:VALUE,NAME:VALUE. Errors never repeat them: they may be secret."""
    text = text.strip()
    if text.startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise click.UsageError(f"--auth-params of {plugin} is not valid JSON") from error
        return {name: str(value) for name, value in found.items()}
    pairs = (each.partition(":") for each in text.split(","))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}
