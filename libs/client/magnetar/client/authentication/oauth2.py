"""Tokens of OAuth2's client credentials flow (RFC 6749, section 4.4), for the plugin AuthenticationOAuth2.

The issuer's metadata names its token endpoint (RFC 8414). Uses only the standard library.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

TIMEOUT_S: Final = 10.0
BODY_BYTES_MAX: Final = 1024 * 1024
RENEWED_AT: Final = 0.9
"""Share of a token's lifetime after which a new one is fetched, as in Pulsar's clients."""
UNTOLD_LIFETIME_S: Final = 60.0
"""Time that a token is used for when its issuer does not say how long it is valid."""

_METADATA: Final = "/.well-known/openid-configuration"
_TEXT_CHARS_MAX: Final = 300

_NAMES: Final = {
    "type": "type",
    "issuerUrl": "issuer_url",
    "privateKey": "private_key",
    "audience": "audience",
    "scope": "scope",
    "trustCertsFilePath": "trust_certs_file",
    "tlsCertFile": "certificate_file",
    "tlsKeyFile": "key_file",
    "wellKnownMetadataPath": "metadata_path",
    # Names of the C++ library and those that stand on it.
    "issuer_url": "issuer_url",
    "private_key": "private_key",
}
_WITHOUT_EFFECT: Final = frozenset({"connectTimeout", "readTimeout", "autoCertRefreshDuration"})


class NoToken(OSError):
    """An issuer gave no token; the message says why, and what to do."""


class _Unmoved(urllib.request.HTTPRedirectHandler):
    """Disables redirects: a client's secret goes only to the address that was given."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2Parameters:
    """Parameters of AuthenticationOAuth2, by the meaning that Pulsar's clients give them."""

    issuer_url: str
    private_key: str = field(repr=False)
    """URL (file: or data:) of the JSON with client_id and client_secret; read for every token."""
    audience: str = ""
    scope: str = ""
    trust_certs_file: str = ""
    """Authorities of the issuer's certificate (PEM); empty: the system's."""
    certificate_file: str = ""
    """Certificate to show to the issuer (PEM), and its key."""
    key_file: str = ""
    metadata_path: str = _METADATA

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> OAuth2Parameters:
        """Check and convert parameters by their names in Pulsar. Raises ValueError, without secrets."""
        unknown = sorted(name for name in given if name not in _NAMES and name not in _WITHOUT_EFFECT)
        if unknown:
            raise ValueError(f"unknown parameter {unknown[0]!r}; known ones are {', '.join(_NAMES)}")
        found = {_NAMES[name]: value for name, value in given.items() if name in _NAMES and value}
        kind = found.pop("type", "client_credentials")
        if kind != "client_credentials":
            raise ValueError(f"type {kind!r} is not supported; use client_credentials")
        for name in ("issuerUrl", "privateKey"):
            if _NAMES[name] not in found:
                raise ValueError(
                    f'{name} is missing; give {{"issuerUrl":"https://HOST","privateKey":"file:///FILE",'
                    '"audience":"TEXT"}'
                )
        parts = urlsplit(found["issuer_url"])
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"issuerUrl {found['issuer_url']!r} is not a URL; write it as https://HOST")
        if not found["private_key"].startswith(("file:", "data:")):
            raise ValueError("privateKey must be file:///FILE or data:application/json;base64,TEXT")
        if ("certificate_file" in found) != ("key_file" in found):
            raise ValueError("tlsCertFile and tlsKeyFile are given together")
        return cls(**found)


@dataclass(frozen=True, slots=True)
class _Fetched:
    text: bytes
    renewed_at_s: float
    expires_at_s: float


class OAuth2Tokens:
    """Supplies tokens of an issuer; each is fetched when the former one has little time left."""

    def __init__(self, parameters: OAuth2Parameters, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._parameters = parameters
        self._clock = clock
        self._endpoint = ""
        self._fetched: _Fetched | None = None
        self._lock = threading.Lock()

    def supply(self) -> bytes:
        """Return a valid token; waits for the issuer where a new one is needed. Raises NoToken.

        While the issuer does not answer, the former token is returned until it expires.
        """
        with self._lock:
            known, now_s = self._fetched, self._clock()
            if known is not None and now_s < known.renewed_at_s:
                return known.text
            try:
                self._fetched = self._fetch()
            except NoToken:
                if known is None or now_s >= known.expires_at_s:
                    raise
                return known.text
            return self._fetched.text

    def _fetch(self) -> _Fetched:
        parameters = self._parameters
        key = _read_key(parameters.private_key)
        self._endpoint = self._endpoint or self._find_endpoint()
        form = {
            "grant_type": "client_credentials",
            "client_id": key["client_id"],
            "client_secret": key["client_secret"],
            "audience": parameters.audience,
            "scope": parameters.scope,
        }
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        request = urllib.request.Request(
            self._endpoint,
            body,
            {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"},
        )
        began_s = self._clock()
        answer = self._ask(request, f"client {_printable(key['client_id'])!r}")
        token = answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise NoToken(f"{self._endpoint} answered without a usable access_token; check issuerUrl")
        lifetime_s = _seconds(answer.get("expires_in"))
        return _Fetched(token.encode(), began_s + lifetime_s * RENEWED_AT, began_s + lifetime_s)

    def _find_endpoint(self) -> str:
        issuer = self._parameters.issuer_url.rstrip("/")
        url = f"{issuer}/{self._parameters.metadata_path.lstrip('/')}"
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        endpoint = self._ask(request, "metadata").get("token_endpoint")
        if not isinstance(endpoint, str) or urlsplit(endpoint).scheme not in ("http", "https"):
            raise NoToken(f"{url} names no token_endpoint; check issuerUrl")
        if issuer.startswith("https:") and not endpoint.startswith("https:"):
            raise NoToken(
                f"{url} names a token_endpoint without TLS, {_printable(endpoint)}: no secret is sent there"
            )
        return endpoint

    def _ask(self, request: urllib.request.Request, what: str) -> dict[str, Any]:
        """Return the JSON object that answers a request. `what` is asked for, in errors. Raises NoToken."""
        url = request.full_url
        opener = urllib.request.build_opener(_Unmoved, urllib.request.HTTPSHandler(context=self._tls()))
        try:
            with opener.open(request, timeout=TIMEOUT_S) as response:
                return _json(response, url)
        except urllib.error.HTTPError as error:
            with error:
                raise NoToken(_refusal(error, url, what)) from error
        except (OSError, HTTPException) as error:
            if isinstance(error, NoToken):
                raise
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise NoToken(
                    f"the certificate of {url} is not accepted: {reason.verify_message}; name the issuer's "
                    "authority as trustCertsFilePath among the parameters"
                ) from error
            text = getattr(reason, "strerror", None) or reason
            raise NoToken(
                f"the issuer {url} does not answer: {_printable(text)}; check issuerUrl and the network"
            ) from error

    def _tls(self) -> ssl.SSLContext:
        parameters = self._parameters
        try:
            context = ssl.create_default_context(cafile=parameters.trust_certs_file or None)
            if parameters.certificate_file:
                context.load_cert_chain(parameters.certificate_file, parameters.key_file)
        except (OSError, ssl.SSLError) as error:
            files = (parameters.trust_certs_file, parameters.certificate_file, parameters.key_file)
            named = ", ".join(filter(None, files))
            raise NoToken(f"{named}: {error.strerror or error}; PEM files are needed") from error
        return context


def _read_key(url: str) -> dict[str, str]:
    """Return client_id and client_secret of a credentials file. Raises NoToken, without its content."""
    named = "privateKey" if url.startswith("data:") else url
    try:
        if url.startswith("data:"):
            with urllib.request.urlopen(url) as response:
                content = response.read(BODY_BYTES_MAX)
        else:
            content = Path(url.removeprefix("file:").removeprefix("//")).read_bytes()
        found = json.loads(content)
        key = {name: found[name] for name in ("client_id", "client_secret")}
    except OSError as error:
        raise NoToken(f"{named}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError):
        key = {}
    if not key or not all(isinstance(each, str) and each for each in key.values()):
        raise NoToken(
            f'{named} is not a credentials file; it needs {{"client_id":"NAME","client_secret":"TEXT"}}'
        )
    return key


def _json(response: HTTPResponse, url: str) -> dict[str, Any]:
    try:
        found = json.loads(response.read(BODY_BYTES_MAX))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NoToken(f"{url} did not answer with a JSON object; check issuerUrl")
    return found


def _refusal(error: urllib.error.HTTPError, url: str, what: str) -> str:
    location = error.headers.get("Location")
    if location and 300 <= error.code < 400:
        return f"{url} redirects to {_printable(location)}; name that issuer as issuerUrl"
    try:
        said = json.loads(error.read(BODY_BYTES_MAX))
        told = ": ".join(str(said[name]) for name in ("error", "error_description") if said.get(name))
    except (ValueError, TypeError, AttributeError, OSError):
        told = ""
    reason = f"{_printable(told)} (HTTP {error.code})" if told else f"HTTP {error.code}"
    following = (
        "check issuerUrl"
        if what == "metadata"
        else "check client_id and client_secret in the file that privateKey names, audience and scope"
    )
    return f"the issuer {url} refuses the request for {what}: {reason}; {following}"


def _seconds(given: object) -> float:
    """Return expires_in, which some issuers send as text."""
    try:
        found = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return UNTOLD_LIFETIME_S
    return found if found > 0 else UNTOLD_LIFETIME_S


def _printable(text: object) -> str:
    """Return an untrusted text without control characters, truncated when it is long."""
    shown = "".join(each if each.isprintable() else " " for each in str(text))
    return shown if len(shown) <= _TEXT_CHARS_MAX else f"{shown[:_TEXT_CHARS_MAX]} ..."
