"""The provider of OpenID tokens: Pulsar's AuthenticationProviderOpenID. Keys come from the issuers."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol
from urllib.parse import urlsplit

from magnetar.common.obs.logs import get_logger
from magnetar.common.security.authentication.claims import check_audience, check_times, role_of
from magnetar.common.security.authentication.config import OpenIdConfig
from magnetar.common.security.authentication.jwks import parse_published_key_set
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.signed_token import (
    header_of,
    token_text,
    unverified_claims,
    verified_claims,
)
from magnetar.common.security.authentication.slots import Slots
from magnetar.common.security.authentication.token_keys import VerificationKey
from magnetar.common.security.identity import TOKEN, Credential, Identity

log = get_logger(__name__)

NAME: Final = "AuthenticationProviderOpenID"

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512")

REQUIRED_CLAIMS: Final = ("exp", "iat", "nbf", "sub")

RETRY_S: Final = 10.0
"""Seconds after a failed fetch before the issuer is asked again."""


class Documents(Protocol):
    """Gets documents of issuers."""

    async def fetch(self, url: str) -> bytes:
        """Return a document. Raises OSError or ValueError, whose text says why it cannot be had."""
        ...

    async def close(self) -> None:
        """Close connections; idempotent."""
        ...


class _Issuer:
    """The keys of an issuer, and when they were fetched."""

    def __init__(self) -> None:
        self.keys: dict[str, VerificationKey] | None = None
        self.fetched_at = float("-inf")
        self.failed_at = float("-inf")
        self.fetching: asyncio.Task[None] | None = None


class OpenIdProvider:
    """Verifies tokens with the keys that their issuers publish. The last known keys are used while an issuer
    cannot be reached.
    """

    name = NAME
    method = TOKEN

    def __init__(
        self,
        config: OpenIdConfig,
        documents: Documents,
        slots: Slots,
        wall_s: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """It closes `documents`. Raises ValueError that lists what is wrong with the settings."""
        problems = openid_problems(config)
        if problems:
            raise ValueError("; ".join(problems))
        self._config = config
        self._documents = documents
        self._slots = slots
        self._wall_s = wall_s
        self._monotonic = monotonic
        self._issuers: OrderedDict[str, _Issuer] = OrderedDict()

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        token = token_text(credential.data)
        header = header_of(token)
        if header.get("alg") not in ALGORITHMS:
            raise Refusal("signature", f"algorithm {header.get('alg')!r:.20} is not accepted")
        issuer = unverified_claims(token).get("iss")
        if not isinstance(issuer, str) or issuer not in self._config.issuers:
            raise Refusal("issuer", "the token's issuer is not accepted")
        claims = verified_claims(token, header, await self._key(issuer, header.get("kid")))
        missing = [claim for claim in REQUIRED_CLAIMS if claims.get(claim) is None]
        if missing:
            raise Refusal("malformed", f"the token has no {', '.join(missing)}")
        expires_at = check_times(claims, self._wall_s(), self._config.leeway_s)
        check_audience(claims, "aud", self._config.audiences)
        return Identity(role_of(claims, self._config.role_claim), TOKEN, expires_at, "", NAME)

    def is_valid(self, identity: Identity) -> bool:
        return True

    async def reload(self) -> bool:
        return False

    async def close(self) -> None:
        """Give up fetches in process and close connections."""
        tasks = [each.fetching for each in self._issuers.values() if each.fetching is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._documents.close()

    async def _key(self, issuer: str, kid: object) -> VerificationKey:
        known = self._known(issuer)
        age_s = self._monotonic() - known.fetched_at
        if known.keys is None or age_s >= self._config.expiration_s:
            await self._refresh(issuer, known)
        elif age_s >= self._config.refresh_s:
            self._start_fetch(issuer, known)
        found = _key_in(known, kid)
        if found is None and self._may_refetch(known, kid):
            await self._refresh(issuer, known)
            found = _key_in(known, kid)
        if found is None:
            raise Refusal("key", f"no key with the id {kid!r:.80} of issuer {issuer}")
        return found

    def _may_refetch(self, known: _Issuer, kid: object) -> bool:
        """Whether an unknown key id is a reason to ask the issuer again."""
        if known.keys is None or not isinstance(kid, str):
            return False
        age_s = self._monotonic() - known.fetched_at
        return age_s >= max(self._config.key_miss_refresh_s, RETRY_S)

    def _known(self, issuer: str) -> _Issuer:
        known = self._issuers.get(issuer)
        if known is None:
            known = self._issuers[issuer] = _Issuer()
            while len(self._issuers) > self._config.cache_size:
                _, forgotten = self._issuers.popitem(last=False)
                if forgotten.fetching is not None:
                    forgotten.fetching.cancel()
        self._issuers.move_to_end(issuer)
        return known

    async def _refresh(self, issuer: str, known: _Issuer) -> None:
        """Wait for a fetch, which all callers share; a failure leaves what was known."""
        task = self._start_fetch(issuer, known)
        if task is not None:
            await asyncio.wait([task])

    def _start_fetch(self, issuer: str, known: _Issuer) -> asyncio.Task[None] | None:
        if known.fetching is None and self._monotonic() - known.failed_at >= RETRY_S:
            known.fetching = asyncio.create_task(self._fetch_keys(issuer, known), name=f"keys of {issuer}")
        return known.fetching

    async def _fetch_keys(self, issuer: str, known: _Issuer) -> None:
        try:
            async with self._slots.slot():
                known.keys = await self._keys_of(issuer)
            known.fetched_at = self._monotonic()
        except Exception as error:
            known.failed_at = self._monotonic()
            log.warning(
                "cannot fetch the keys of an issuer",
                issuer=issuer,
                reason=f"{type(error).__name__}: {error}",
                keeps_old_keys=known.keys is not None,
            )
        finally:
            known.fetching = None

    async def _keys_of(self, issuer: str) -> dict[str, VerificationKey]:
        content = await self._documents.fetch(issuer.rstrip("/") + "/.well-known/openid-configuration")
        document = json.loads(content)
        if not isinstance(document, dict) or document.get("issuer") != issuer:
            raise ValueError("the discovery document names another issuer")
        uri = document.get("jwks_uri")
        if not isinstance(uri, str) or not _is_accepted(uri, self._config.require_https):
            raise ValueError("the discovery document has no acceptable jwks_uri")
        return parse_published_key_set(await self._documents.fetch(uri))


def openid_problems(config: OpenIdConfig) -> list[str]:
    """Return what is wrong with the settings, one sentence each."""
    found = []
    if not config.issuers:
        found.append("openIDAllowedTokenIssuers is empty; list the issuers that are accepted")
    found += [
        f"openIDAllowedTokenIssuers: {issuer} is not an https URL (openIDRequireIssuersUseHttps)"
        for issuer in config.issuers
        if not _is_accepted(issuer, config.require_https)
    ]
    if not config.audiences:
        found.append("openIDAllowedAudiences is empty; list the audiences that are accepted")
    if config.fallback_discovery_mode != "DISABLED":
        found.append(
            f"openIDFallbackDiscoveryMode = {config.fallback_discovery_mode!r} is not supported; set "
            "DISABLED and list the cluster's issuer in openIDAllowedTokenIssuers"
        )
    return found


def _key_in(known: _Issuer, kid: object) -> VerificationKey | None:
    return known.keys.get(kid) if known.keys is not None and isinstance(kid, str) else None


def _is_accepted(url: str, require_https: bool) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and parts.scheme in (("https",) if require_https else ("https", "http"))
