"""Certificates that are made here do what OpenSSL and cryptography expect of them."""

from __future__ import annotations

import ssl
import stat
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from magnetar.common.security.certificates import Authority, Leaf


def loaded(leaf: Leaf) -> x509.Certificate:
    return x509.load_pem_x509_certificate(leaf.certificate)


@pytest.mark.parametrize("rsa_bits", [0, 2048])
def test_openssl_verifies_a_leaf_for_both_purposes(tmp_path: Path, rsa_bits: int) -> None:
    authority = Authority("clients", rsa_bits=rsa_bits)
    leaf = authority.issue("a", dns=["localhost"], ips=["::1"], rsa_bits=rsa_bits)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    certificate, key = leaf.write(tmp_path, "a")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for purpose in ("sslserver", "sslclient"):
        subprocess.run(
            [
                *("openssl", "verify", "-x509_strict", "-purpose", purpose),
                *("-CAfile", tmp_path / "ca.pem", certificate),
            ],
            check=True,
            capture_output=True,
        )
    ssl.create_default_context().load_cert_chain(certificate, key)


def test_names_stand_in_the_certificate_as_they_were_given() -> None:
    leaf = Authority("a").issue(
        ("one", "two"), dns=["broker"], ips=["127.0.0.1"], uris=["spiffe://c/broker"], client=False
    )
    certificate = loaded(leaf)
    assert certificate.subject.rfc4514_string() == "CN=two,CN=one"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://c/broker"]
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [usage._name for usage in usages] == ["serverAuth"]


@pytest.mark.parametrize("rsa_bits", [0, 2048])
def test_a_certificate_of_version_1_has_no_extensions_and_is_signed(rsa_bits: int) -> None:
    authority = Authority("old", rsa_bits=rsa_bits)
    certificate = loaded(authority.issue_v1("client"))
    assert certificate.version is x509.Version.v1
    assert not list(certificate.extensions)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))


def test_a_negative_lifetime_makes_a_certificate_that_has_expired() -> None:
    certificate = loaded(Authority("a").issue("late", lifetime=timedelta(minutes=-5)))
    assert certificate.not_valid_before_utc < certificate.not_valid_after_utc
    assert certificate.not_valid_after_utc.timestamp() < time.time()


def test_a_revocation_list_names_what_was_revoked() -> None:
    authority = Authority("a")
    good, bad = authority.issue("good"), authority.issue("bad")
    revoked = x509.load_pem_x509_crl(authority.revocation_list([bad]))
    assert revoked.get_revoked_certificate_by_serial_number(loaded(bad).serial_number) is not None
    assert revoked.get_revoked_certificate_by_serial_number(loaded(good).serial_number) is None
