"""Credentials that callers present, and the identities that are derived from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

NONE: Final = "none"
"""The method of a caller without a credential, and of the anonymous role."""

TOKEN: Final = "token"
BASIC: Final = "basic"
TLS: Final = "tls"


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential as it arrived. Never log it: `data` is secret, so it is not in the representation."""

    method: str
    """The name of the method: "token", "basic", "tls", or any other name that a client sent."""
    data: bytes = field(default=b"", repr=False)
    """The token, or `user:password`."""
    certificate: bytes | None = field(default=None, repr=False)
    """The certificate of the connection's peer as DER; None without one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An accepted credential."""

    role: str
    method: str
    expires_at: float | None = None
    """Seconds since 1970 UTC; None for a credential that does not expire."""
    key: str = field(default="", repr=False)
    """Input of the provider's later checks whether the credential was revoked; opaque to all others."""
    provider: str = ""
    """Class name of the provider that accepted it; empty for the anonymous role."""
