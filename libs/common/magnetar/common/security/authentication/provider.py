"""The interface of a provider of authentication."""

from __future__ import annotations

from typing import Final, Protocol

from magnetar.common.security.identity import Credential, Identity

REASONS: Final = (
    "audience",
    "busy",
    "expired",
    "issuer",
    "key",
    "malformed",
    "no_certificate",
    "no_credentials",
    "no_provider",
    "no_role",
    "not_yet_valid",
    "password",
    "revoked",
    "signature",
    "too_many_failures",
)
"""Every value of the label `reason` of pulsar_authentication_failures_total."""


class Refusal(Exception):
    """A provider does not accept a credential. The text is for the log and holds nothing secret."""

    def __init__(self, reason: str, detail: str) -> None:
        assert reason in REASONS, reason
        super().__init__(detail)
        self.reason = reason


class Provider(Protocol):
    """Derives an identity from the credentials of one method."""

    name: str
    """Class name of Pulsar's provider, without its package: the label provider_name."""
    method: str

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        """Return the identity; `address` is the caller's host. Raises Refusal, or ServiceNotReady when too
        many checks wait.
        """
        ...

    def is_valid(self, identity: Identity) -> bool:
        """Return whether an identity that this provider gave is still accepted, apart from its expiry."""
        ...

    async def reload(self) -> bool:
        """Read again what changed on disk; return whether identities may have become invalid."""
        ...

    async def close(self) -> None:
        """Release what the provider holds; idempotent."""
        ...
