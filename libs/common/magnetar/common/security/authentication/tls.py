"""The provider of client certificates: Pulsar's AuthenticationProviderTls. The role is the common name."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.identity import TLS, Credential, Identity

NAME: Final = "AuthenticationProviderTls"


class TlsProvider:
    """Derives the role from a certificate that the TLS handshake has verified."""

    name = NAME
    method = TLS

    def __init__(
        self,
        *,
        max_age_s: int = 0,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`max_age_s`: seconds after which an identity expires before its certificate; 0: no limit."""
        self._max_age_s = max_age_s
        self._wall_s = wall_s

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        if credential.certificate is None:
            raise Refusal("no_certificate", "the connection has no client certificate")
        role, expires_at = read_certificate(credential.certificate)
        if self._max_age_s:
            expires_at = min(expires_at, self._wall_s() + self._max_age_s)
        return Identity(role, TLS, expires_at, "", NAME)

    def is_valid(self, identity: Identity) -> bool:
        """True: TLS ends connections whose certificates were revoked."""
        return True

    async def reload(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


def read_certificate(der: bytes) -> tuple[str, float]:
    """Return the role, and the expiry in seconds since 1970 UTC.

    The role is the last common name in the order of the encoding, as it stands. Raises Refusal without one.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        expires_at = certificate.not_valid_after_utc.timestamp()
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal("malformed", f"the certificate cannot be read: {error}") from error
    role = names[-1].value if names else ""
    if not isinstance(role, str) or not role.strip():
        raise Refusal("no_role", "the certificate's subject has no common name")
    return role, expires_at
