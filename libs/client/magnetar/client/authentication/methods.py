"""Credentials: what a client shows to a broker, by the names of Pulsar's authentication methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Authentication(Protocol):
    """Credentials of a client; plug-ins of applications have the same form."""

    @property
    def method(self) -> str:
        """The method's name on the wire, such as token."""
        ...

    @property
    def blocks(self) -> bool:
        """Whether `secret` may take time, so that it is called in a thread."""
        ...

    def secret(self) -> bytes:
        """Returns the data for a new connection, and for each challenge. Raises OSError when there is none
        now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A token (JWT): its text, or a function that returns the present one, such as the content of a file."""

    token: str | Callable[[], str] = field(repr=False)
    method: str = field(default="token", init=False)

    @property
    def blocks(self) -> bool:
        return callable(self.token)

    def secret(self) -> bytes:
        text = self.token() if callable(self.token) else self.token
        return text.strip().encode()

    @staticmethod
    def from_file(path: str | Path) -> Token:
        """Returns a token that is read from a file for each connection and each refresh."""
        return Token(lambda: Path(path).read_text())


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password."""

    username: str
    password: str = field(repr=False)
    method: str = field(default="basic", init=False)
    blocks: bool = field(default=False, init=False)

    def secret(self) -> bytes:
        return f"{self.username}:{self.password}".encode()


@dataclass(frozen=True, slots=True)
class TlsCertificate:
    """The certificate of the connection itself, given by `Tls`: the broker takes the role from it."""

    method: str = field(default="tls", init=False)
    blocks: bool = field(default=False, init=False)

    def secret(self) -> bytes:
        return b""


class OAuth2:
    """Tokens of an issuer by OAuth2's client credentials flow, renewed before they expire."""

    method = "token"
    blocks = True

    def __init__(
        self,
        issuer_url: str,
        private_key: str,
        *,
        audience: str = "",
        scope: str = "",
        trust_certs_file: str = "",
    ) -> None:
        """`private_key` is a file: or data: URL of the JSON with client_id and client_secret. Raises
        ValueError for parameters that cannot be used.
        """
        # With what it imports for HTTP, it takes a fifth of the time to import the client.
        from magnetar.client.authentication.oauth2 import OAuth2Parameters, OAuth2Tokens

        given = {"issuerUrl": issuer_url, "privateKey": private_key, "audience": audience, "scope": scope}
        given["trustCertsFilePath"] = trust_certs_file
        self._tokens = OAuth2Tokens(OAuth2Parameters.parse(given))

    def secret(self) -> bytes:
        return self._tokens.supply()


@dataclass(frozen=True, slots=True)
class Credentials:
    """A method and a function that gives its data: for methods that have no class here."""

    method: str
    supply: Callable[[], bytes] = field(repr=False)
    blocks: bool = field(default=True, init=False)

    def secret(self) -> bytes:
        return self.supply()
