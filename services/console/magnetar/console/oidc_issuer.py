"""An OpenID Connect issuer over HTTP: its description, its keys and its tokens, bounded in size and time."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from magnetar.console.errors import LoginFailed
from magnetar.console.oidc_config import OidcConfig

ANSWER_BYTES_MAX: Final = 1 << 20
TIMEOUT: Final = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
DESCRIBED_FOR_S: Final = 600.0
"""Seconds for which the issuer's description and keys are not asked for again."""


@dataclass(frozen=True, slots=True)
class IssuerDescription:
    """The endpoints of an issuer (OpenID Connect Discovery 1.0, section 3)."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str
    """Empty if the issuer has none."""
    posts_secret: bool
    """Whether the client's secret goes into the form, because the issuer takes no basic authentication."""


class OidcIssuer:
    """Asks one issuer. Create it on its event loop; `close` ends its connections."""

    def __init__(self, config: OidcConfig, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock. Raises ValueError when a file of `config` cannot be read."""
        self._config = config
        self._secret = config.read_secret()
        self._now_s = now_s
        self._tls: ssl.SSLContext | bool = True
        if config.trust_certs_file:
            try:
                self._tls = ssl.create_default_context(cafile=config.trust_certs_file)
            except OSError as error:
                raise ValueError(
                    f"magnetarConsoleOidcTrustCertsFilePath: cannot read {config.trust_certs_file}: {error}"
                ) from error
        self._session: aiohttp.ClientSession | None = None
        self._asking = asyncio.Lock()
        self._described: tuple[float, IssuerDescription] | None = None
        self._keys: tuple[float, dict[str, Any]] | None = None

    async def description(self) -> IssuerDescription:
        """Returns the issuer's endpoints. Raises LoginFailed."""
        async with self._asking:
            if self._described is None or self._now_s() - self._described[0] > DESCRIBED_FOR_S:
                url = f"{self._config.issuer.rstrip('/')}/.well-known/openid-configuration"
                self._described = self._now_s(), self._description(await self._json("GET", url))
            return self._described[1]

    async def keys(self, *, again: bool = False) -> dict[str, Any]:
        """Returns the issuer's key set; `again` for a key that the last one lacks. Raises LoginFailed."""
        description = await self.description()
        async with self._asking:
            if again or self._keys is None or self._now_s() - self._keys[0] > DESCRIBED_FOR_S:
                self._keys = self._now_s(), await self._json("GET", description.jwks_uri)
            return self._keys[1]

    async def tokens(self, code: str, verifier: str) -> dict[str, Any]:
        """Exchanges a code for tokens (RFC 6749, section 4.1.3, and RFC 7636). Raises LoginFailed."""
        config, description = self._config, await self.description()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": config.redirect_uri,
            "client_id": config.client_id,
            "code_verifier": verifier,
        }
        headers = {}
        if self._secret and description.posts_secret:
            form["client_secret"] = self._secret
        elif self._secret:
            headers["Authorization"] = aiohttp.encode_basic_auth(config.client_id, self._secret)
        return await self._json("POST", description.token_endpoint, form, headers)

    async def close(self) -> None:
        """Closes connections. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _description(self, document: Mapping[str, Any]) -> IssuerDescription:
        if document.get("issuer") != self._config.issuer:
            raise LoginFailed(
                f"the issuer calls itself {str(document.get('issuer'))[:200]!r}: set "
                "magnetarConsoleOidcIssuer to exactly that"
            )
        found = {}
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            url = document.get(name)
            if not isinstance(url, str) or not self._is_as_safe(url):
                raise LoginFailed(f"the issuer's description has no usable {name}: {str(url)[:200]!r}")
            found[name] = url
        end = document.get("end_session_endpoint")
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return IssuerDescription(
            **found,
            end_session_endpoint=end if isinstance(end, str) and self._is_as_safe(end) else "",
            posts_secret=isinstance(methods, list) and "client_secret_basic" not in methods,
        )

    def _is_as_safe(self, url: str) -> bool:
        """Whether a URL has HTTPS if the issuer's has."""
        scheme = urlsplit(url).scheme
        return scheme == "https" or (scheme == "http" and urlsplit(self._config.issuer).scheme == "http")

    async def _json(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=TIMEOUT, connector=aiohttp.TCPConnector(ssl=self._tls, limit=8)
            )
        where = f"the issuer at {urlsplit(url).netloc}"
        try:
            asked = self._session.request(method, url, data=form, headers=headers, allow_redirects=False)
            async with asked as response:
                status, content = response.status, await _bounded(response)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise LoginFailed(f"{where} cannot be reached: {type(error).__name__}: {error}") from error
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            reason = _reason(answer) if isinstance(answer, dict) else ""
            raise LoginFailed(f"{where} answered with status {status}{reason}")
        if not isinstance(answer, dict):
            raise LoginFailed(f"{where} did not answer with a JSON object")
        return answer


def _reason(answer: Mapping[str, Any]) -> str:
    """Returns the reason in an error of OAuth (RFC 6749, section 5.2)."""
    found = [str(answer[name])[:300] for name in ("error", "error_description") if answer.get(name)]
    return f": {' - '.join(found)}" if found else ""


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for part in response.content.iter_chunked(64 * 1024):
        content += part
        if len(content) > ANSWER_BYTES_MAX:
            raise LoginFailed(f"the issuer's answer has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(content)
