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
        is_revoked: Callable[[str], bool] | None = None,
        *,
        max_age_s: int = 0,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`is_revoked` tells it by serial number, in hexadecimal digits; None where no list is configured.

        `max_age_s`: seconds after which an identity expires although its certificate does not; 0: never.
        """
        self._is_revoked = is_revoked
        self._max_age_s = max_age_s
        self._wall_s = wall_s

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        if credential.certificate is None:
            raise Refusal("no_certificate", "the connection has no client certificate")
        role, serial, expires_at = read_certificate(credential.certificate)
        if self._max_age_s:
            expires_at = min(expires_at, self._wall_s() + self._max_age_s)
        identity = Identity(role, TLS, expires_at, serial, NAME)
        if not self.is_valid(identity):
            raise Refusal("revoked", "the certificate is revoked")
        return identity

    def is_valid(self, identity: Identity) -> bool:
        return self._is_revoked is None or not self._is_revoked(identity.key)

    async def reload(self) -> bool:
        return False

    async def close(self) -> None:
        """Nothing is held."""


def read_certificate(der: bytes) -> tuple[str, str, float]:
    """Return the role, the serial number in hexadecimal digits, and the expiry in seconds since 1970 UTC.

    The role is the last common name in the order of the encoding, as it stands. Raises Refusal without one.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        expires_at = certificate.not_valid_after_utc.timestamp()
        serial = f"{certificate.serial_number:x}"
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal("malformed", f"the certificate cannot be read: {error}") from error
    role = names[-1].value if names else ""
    if not isinstance(role, str) or not role.strip():
        raise Refusal("no_role", "the certificate's subject has no common name")
    return role, serial, expires_at
