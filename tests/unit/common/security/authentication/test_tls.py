"""Client certificates: the role is the last common name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.tls import TlsProvider
from magnetar.common.security.identity import Credential

from tests.unit.common.security.authentication.signing import accepted, ec_key

EXPIRY = datetime(2040, 1, 1, tzinfo=UTC)


def certificate(*names: str, serial: int = 255) -> bytes:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Org"), *attributes])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(ec_key().public_key())
        .serial_number(serial)
        .not_valid_before(EXPIRY - timedelta(days=9))
        .not_valid_after(EXPIRY)
    )
    return builder.sign(ec_key(), SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "role"),
    [(("alice",), "alice"), (("first", "last"), "last"), (("a, b+c=d\\",), "a, b+c=d\\"), (("ünï",), "ünï")],
)
def test_the_role_is_the_last_common_name_as_it_stands(names: tuple[str, ...], role: str) -> None:
    identity = accepted(TlsProvider(), Credential("tls", certificate=certificate(*names)))
    assert (identity.role, identity.method) == (role, "tls")
    assert identity.expires_at == EXPIRY.timestamp()


@pytest.mark.parametrize(
    ("der", "reason"),
    [
        (None, "no_certificate"),
        (b"", "malformed"),
        (b"nothing", "malformed"),
        (certificate(), "no_role"),
        (certificate("  "), "no_role"),
    ],
)
def test_a_certificate_without_a_common_name_is_refused(der: bytes | None, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        accepted(TlsProvider(), Credential("tls", certificate=der))
    assert caught.value.reason == reason


def test_an_identity_expires_with_the_limit_of_a_connection_or_with_the_certificate() -> None:
    credential = Credential("tls", certificate=certificate("a"))
    assert accepted(TlsProvider(max_age_s=60, wall_s=lambda: 1_000.0), credential).expires_at == 1_060.0
    late = EXPIRY.timestamp() - 10
    assert (
        accepted(TlsProvider(max_age_s=60, wall_s=lambda: late), credential).expires_at == EXPIRY.timestamp()
    )
