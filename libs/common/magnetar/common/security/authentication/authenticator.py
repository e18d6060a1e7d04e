"""Authenticates callers: asks the providers of the credential's method, and knows who is anonymous."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from magnetar.common.errors import AuthenticationFailed
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.authentication.metrics import FAILURES, SUCCESSES
from magnetar.common.security.authentication.provider import Provider, Refusal
from magnetar.common.security.http_headers import AUTH_METHOD
from magnetar.common.security.identity import BASIC, NONE, TLS, TOKEN, Credential, Identity

log = get_logger(__name__)

FAILED: Final = "Failed to authenticate"
"""Every failure reads so on the wire; the log has the reason."""

FAILURE_DELAY_S: Final = 1.0
"""Seconds before a wrong password is answered, so that guessing is slow."""


_BEARER: Final = "Bearer "
_BASIC: Final = "basic "

_OTHER: Final = "other"
"""Label value for methods that no provider has: their names are the client's choice."""


class Authenticator:
    """The providers of a process, in the order in which they are asked."""

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        anonymous_role: str,
        monotonic: Callable[[], float],
        failure_delay_s: float = FAILURE_DELAY_S,
    ) -> None:
        """It closes the providers. `anonymous_role` is empty where callers must have a credential."""
        self._providers = tuple(providers)
        self._by_name = {provider.name: provider for provider in providers}
        self._anonymous_role = anonymous_role
        self._monotonic = monotonic
        self._failure_delay_s = failure_delay_s
        self._log_limit = LogLimit()
        self._changed: list[Callable[[], None]] = []

    @property
    def anonymous(self) -> Identity | None:
        """The identity of callers without a credential; None where they are refused."""
        return Identity(self._anonymous_role, NONE) if self._anonymous_role else None

    def has_method(self, method: str) -> bool:
        """Return whether a provider checks credentials of this method."""
        return any(provider.method == method for provider in self._providers)

    async def authenticate(
        self, credential: Credential | None, address: str, *, asked_first: str = ""
    ) -> Identity:
        """Return the identity of a caller of the binary protocol at this host.

        A method that no provider has gives the anonymous role, if there is one; a credential that is refused
        never does. `asked_first` names the provider that accepted the caller before. Raises
        AuthenticationFailed, or ServiceNotReady when too many checks wait.
        """
        if credential is None or not self.has_method(credential.method):
            if (anonymous := self.anonymous) is not None:
                return anonymous
            method = NONE if credential is None else credential.method
            reason = "no_credentials" if method == NONE else "no_provider"
            FAILURES.labels("", NONE if method == NONE else _OTHER, reason).inc()
            raise self._failure(method, address, f"no provider for the method {method!r:.80}")
        return await self._ask(credential, address, asked_first)

    async def authenticate_http(
        self, headers: Mapping[str, str], certificate: bytes | None, address: str
    ) -> Identity:
        """Return the identity of an HTTP request by its headers and the certificate of its connection.

        An Authorization header that is not accepted fails also where there is an anonymous role, and takes
        precedence over a certificate, which browsers send unasked. Raises as `authenticate`.
        """
        authorization, named = headers.get("Authorization"), headers.get(AUTH_METHOD)
        if named is not None:
            credential = _named_credential(named, authorization, certificate)
            if not self.has_method(named) or credential is None:
                return await self._refuse_http(named, address)
            return await self._ask(credential, address)
        if authorization is not None:
            credential = _credential(authorization)
            if credential is None or not self.has_method(credential.method):
                return await self._refuse_http(_OTHER if credential is None else credential.method, address)
            return await self._ask(credential, address)
        anonymous = self.anonymous
        if certificate is not None and self.has_method(TLS):
            try:
                return await self._ask(Credential(TLS, certificate=certificate), address)
            except AuthenticationFailed:
                if anonymous is None:
                    raise
        if anonymous is not None:
            return anonymous
        FAILURES.labels("", NONE, "no_credentials").inc()
        raise self._failure(NONE, address, "no credentials")

    def still_valid(self, identity: Identity) -> bool:
        """Return whether an identity was not revoked since it was accepted; its expiry is not checked."""
        provider = self._by_name.get(identity.provider)
        return provider is None or provider.is_valid(identity)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, from the event loop, after users or revocation lists have changed."""
        self._changed.append(changed)

    async def reload(self) -> None:
        """Read what changed on disk now, and tell those that asked for it."""
        changed = False
        for provider in self._providers:
            changed |= await provider.reload()
        if changed:
            for callback in self._changed:
                callback()

    async def follow_files(self, every_s: float) -> None:
        """Reload again and again, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.reload()
            except Exception:
                log.exception("authentication files cannot be checked")

    async def close(self) -> None:
        """Close the providers; idempotent."""
        for provider in self._providers:
            await provider.close()

    async def _ask(self, credential: Credential, address: str, asked_first: str = "") -> Identity:
        method = credential.method
        asked = [provider for provider in self._providers if provider.method == method]
        asked.sort(key=lambda provider: provider.name != asked_first)
        refusals: list[tuple[str, Refusal]] = []
        for provider in asked:
            try:
                identity = await provider.authenticate(credential, address)
            except Refusal as refusal:
                refusals.append((provider.name, refusal))
                continue
            SUCCESSES.labels(provider.name, method).inc()
            return identity
        for name, refused in refusals:
            FAILURES.labels(name, method, refused.reason).inc()
        detail = "; ".join(f"{name}: {refused}" for name, refused in refusals)
        failure = self._failure(method, address, detail)
        if method == BASIC:
            await asyncio.sleep(self._failure_delay_s)
        raise failure

    async def _refuse_http(self, method: str, address: str) -> Identity:
        FAILURES.labels("", _OTHER, "no_provider").inc()
        raise self._failure(method, address, f"no acceptable credential for the method {method!r:.80}")

    def _failure(self, method: str, address: str, detail: str) -> AuthenticationFailed:
        attempts = self._log_limit.note(self._monotonic())
        if attempts:
            log.info(
                "authentication failed", address=address, method=method[:80], reason=detail, attempts=attempts
            )
        return AuthenticationFailed(FAILED)


def _named_credential(method: str, authorization: str | None, certificate: bytes | None) -> Credential | None:
    if method == TLS:
        return Credential(TLS, certificate=certificate) if certificate is not None else None
    found = _credential(authorization or "")
    return found if found is not None and found.method == method else None


def _credential(authorization: str) -> Credential | None:
    """The credential of an Authorization header; None for another scheme or a malformed value."""
    if authorization.startswith(_BEARER):
        token = authorization.removeprefix(_BEARER)
        return Credential(TOKEN, token.encode("utf-8", "surrogateescape"))
    if authorization[: len(_BASIC)].lower() == _BASIC:
        try:
            return Credential(BASIC, base64.b64decode(authorization[len(_BASIC) :].strip(), validate=True))
        except (binascii.Error, ValueError):
            return None
    return None
