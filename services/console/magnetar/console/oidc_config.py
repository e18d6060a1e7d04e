"""Settings of logging in by OpenID Connect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from magnetar.common.config.settings import setting

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

TokenKind = Literal["access_token", "id_token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """The issuer at which visitors log in; none while `issuer` is empty."""

    issuer: str = setting(
        "",
        "URL of the OpenID Connect issuer at which visitors log in, such as https://login.example.org/realm. "
        "Brokers have to accept its tokens (openIDAllowedTokenIssuers). Empty: visitors paste a token.",
        key="magnetarConsoleOidcIssuer",
    )
    client_id: str = setting(
        "",
        "Id by which the issuer knows the console.",
        key="magnetarConsoleOidcClientId",
    )
    client_secret: str = setting(
        "",
        "Secret of the console at the issuer, or file:PATH. Empty: a public client, protected by PKCE alone.",
        key="magnetarConsoleOidcClientSecret",
        secret=True,
    )
    public_url: str = setting(
        "",
        "URL of the console in browsers, such as https://console.example.org. The issuer has to allow "
        "URL/login/callback as a redirect URI.",
        key="magnetarConsoleUrl",
    )
    scopes: str = setting(
        "openid",
        "Scopes that are asked for, separated by spaces.",
        key="magnetarConsoleOidcScopes",
    )
    audience: str = setting(
        "",
        "Audience that is asked for, where an issuer needs the parameter. Empty: none.",
        key="magnetarConsoleOidcAudience",
    )
    token: str = setting(
        "access_token",
        "The token that is passed on to the cluster.",
        key="magnetarConsoleOidcToken",
        choices=("access_token", "id_token"),
    )
    trust_certs_file: str = setting(
        "",
        "Authorities of the issuer's certificate, a PEM file; empty means the platform's.",
        key="magnetarConsoleOidcTrustCertsFilePath",
    )

    @property
    def enabled(self) -> bool:
        return bool(self.issuer)

    @property
    def redirect_uri(self) -> str:
        """The console's URL to which the issuer sends browsers back."""
        return f"{self.public_url.rstrip('/')}/login/callback"

    def read_secret(self) -> str:
        """Returns the client secret. Raises ValueError when its file cannot be read."""
        if not self.client_secret.startswith("file:"):
            return self.client_secret
        path = Path(self.client_secret.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"magnetarConsoleOidcClientSecret: cannot read {path}: {error}") from error

    def problems(self) -> list[str]:
        """Returns what is wrong with the settings, one sentence each."""
        if not self.enabled:
            return []
        found = []
        for key, url in (("magnetarConsoleOidcIssuer", self.issuer), ("magnetarConsoleUrl", self.public_url)):
            if not _is_protected(url):
                found.append(f"{key} = {url!r}: give an https:// URL, or an http:// URL of this host")
        if not self.client_id:
            found.append(
                "magnetarConsoleOidcClientId is empty: give the id that the issuer has for the console"
            )
        if "openid" not in self.scopes.split():
            found.append(f"magnetarConsoleOidcScopes = {self.scopes!r} lacks 'openid'")
        try:
            self.read_secret()
        except ValueError as error:
            found.append(str(error))
        return found


def _is_protected(url: str) -> bool:
    """Whether a URL is of HTTPS, or stays on this host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))
