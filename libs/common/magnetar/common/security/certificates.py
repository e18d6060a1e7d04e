"""Makes certificate authorities and certificates, for development and tests. Needs `cryptography`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

AUTHORITY_DAYS: Final = 3650
LEAF_DAYS: Final = 90

_CLOCK_SKEW: Final = timedelta(hours=1)
_V3: Final = bytes.fromhex("a003020102")
"""The version field of a certificate, which X.509 v1 does not have."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate and its key, both PEM. The chain of the certificate is the leaf alone."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write NAME.cert.pem and NAME.key.pem, the key for its owner alone; returns the two paths."""
        paths = directory / f"{name}.cert.pem", directory / f"{name}.key.pem"
        paths[0].write_bytes(self.certificate)
        write_secret(paths[1], self.key)
        return paths


class Authority:
    """A certificate authority that lives in memory; its certificate is what others trust."""

    def __init__(self, name: str, *, rsa_bits: int = 0, days: float = AUTHORITY_DAYS) -> None:
        """`rsa_bits`: the size of an RSA key; 0 makes an ECDSA key on P-256."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        self._key = _new_key(rsa_bits)
        self._name = _subject((name,))
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_key_usage(authority=True), True),
            (x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False),
        ]
        builder = _builder(self._name, self._name, self._key, timedelta(days=days), extensions)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, PEM."""
        return _pem(self._certificate)

    @property
    def key(self) -> bytes:
        """The authority's key, PEM. Who has it can be anyone."""
        return _key_pem(self._key)

    def issue(
        self,
        common_name: str | Sequence[str] = (),
        *,
        dns: Sequence[str] = (),
        ips: Sequence[str] = (),
        uris: Sequence[str] = (),
        rsa_bits: int = 0,
        lifetime: timedelta = timedelta(days=LEAF_DAYS),
        server: bool = True,
        client: bool = True,
    ) -> Leaf:
        """A certificate with these names; several common names stand in that order. A negative `lifetime`
        makes one that has expired.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID

        names: list[x509.GeneralName] = [
            *map(x509.DNSName, dns),
            *(x509.IPAddress(ip_address(ip)) for ip in ips),
            *map(x509.UniformResourceIdentifier, uris),
        ]
        usages = [
            *((ExtendedKeyUsageOID.SERVER_AUTH,) if server else ()),
            *((ExtendedKeyUsageOID.CLIENT_AUTH,) if client else ()),
        ]
        key = _new_key(rsa_bits)
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(authority=False), True),
            (x509.ExtendedKeyUsage(usages), False),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ]
        if names:
            extensions.append((x509.SubjectAlternativeName(names), False))
        subject = _subject((common_name,) if isinstance(common_name, str) else common_name)
        builder = _builder(subject, self._name, key, lifetime, extensions)
        return Leaf(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def issue_v1(self, common_name: str, *, lifetime: timedelta = timedelta(days=LEAF_DAYS)) -> Leaf:
        """A certificate of X.509 version 1: it has no extension at all. Tools of old make such ones."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

        key = _new_key(0)
        signed = _builder(_subject((common_name,)), self._name, key, lifetime, ()).sign(
            self._key, hashes.SHA256()
        )
        body = _sequence(_content(signed.tbs_certificate_bytes).replace(_V3, b"", 1))
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            signature = self._key.sign(body, ec.ECDSA(hashes.SHA256()))
        else:
            assert isinstance(self._key, rsa.RSAPrivateKey), "authorities have keys of these two kinds"
            signature = self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        # The algorithm stands between the signed part and the signature.
        rest = _content(_der(signed))[len(signed.tbs_certificate_bytes) :]
        algorithm = rest[: 2 + rest[1]]
        der = _sequence(body + algorithm + b"\x03" + _length(len(signature) + 1) + b"\0" + signature)
        return Leaf(_pem(x509.load_der_x509_certificate(der)), _key_pem(key))

    def revocation_list(self, revoked: Sequence[Leaf] = ()) -> bytes:
        """A revocation list of this authority, PEM, valid for a week."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding

        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - _CLOCK_SKEW)
            .next_update(now + timedelta(days=7))
        )
        for leaf in revoked:
            serial = x509.load_pem_x509_certificate(leaf.certificate).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - _CLOCK_SKEW)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read. Raises OSError, FileExistsError among them."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(content)


def _new_key(rsa_bits: int) -> CertificateIssuerPrivateKeyTypes:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if rsa_bits:
        return rsa.generate_private_key(public_exponent=65_537, key_size=rsa_bits)
    return ec.generate_private_key(ec.SECP256R1())


def _subject(common_names: Sequence[str]) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificateIssuerPrivateKeyTypes,
    lifetime: timedelta,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + lifetime) - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder


def _der(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _content(element: bytes) -> bytes:
    """The content of a DER element."""
    return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) :]


def _sequence(content: bytes) -> bytes:
    return b"\x30" + _length(len(content)) + content


def _length(count: int) -> bytes:
    """A length in DER."""
    if count < 0x80:
        return bytes([count])
    digits = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits
