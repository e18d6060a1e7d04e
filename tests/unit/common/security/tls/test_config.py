"""Settings of TLS: problems are found at the start, each with its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.common.config.loader import load
from magnetar.common.errors import ConfigError
from magnetar.common.security.tls.ciphers import OPENSSL_NAMES, TLS_1_3
from magnetar.common.security.tls.config import TlsConfig, tls_problems
from magnetar.common.security.tls.versions import allowed_versions

NONE: dict[str, int | None] = {"brokerServicePortTls": None, "webServicePortTls": None}
ONE: dict[str, int | None] = {"brokerServicePortTls": 6651, "webServicePortTls": None}
GCM = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"


def problems(ports: dict[str, int | None], **settings: Any) -> list[str]:
    return tls_problems(TlsConfig(**settings), ports)


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "one.pem"
    path.touch()
    return {"certificate_file": str(path), "key_file": str(path)}


def test_without_a_port_nothing_is_needed_and_tls_enabled_alone_is_a_problem() -> None:
    assert problems(NONE) == []
    [problem] = problems(NONE, enabled=True)
    assert problem == "tlsEnabled=true opens no port: give brokerServicePortTls or webServicePortTls"


def test_a_port_needs_a_certificate_and_makes_tls_enabled_harmless(pem: dict[str, Any]) -> None:
    [problem] = problems(ONE)
    assert "tlsCertificateFilePath and tlsKeyFilePath" in problem
    assert problems(ONE, enabled=True, **pem) == []


def test_files_have_to_exist(pem: dict[str, Any]) -> None:
    [problem] = problems(ONE, **pem, trust_certs_file="/nowhere/ca.pem")
    assert problem == "tlsTrustCertsFilePath = '/nowhere/ca.pem': no such file"


def test_required_certificates_need_a_port_and_exclude_insecure_ones(pem: dict[str, Any]) -> None:
    assert "tlsRequireTrustedClientCertOnConnect=true" in problems(NONE, require_client_certificate=True)[0]
    [problem] = problems(ONE, **pem, require_client_certificate=True, allow_insecure=True)
    assert "exclude each other" in problem


def test_insecure_connections_are_refused_where_certificates_are_identities(pem: dict[str, Any]) -> None:
    config = TlsConfig(**pem, allow_insecure=True)
    assert tls_problems(config, ONE) == []
    [problem] = tls_problems(config, ONE, certificates_are_identities=True)
    assert "AuthenticationProviderTls" in problem


def test_unknown_versions_stop_the_start() -> None:
    with pytest.raises(ConfigError, match=r"tlsProtocols = 'TLSv1\.1'"):
        load(TlsConfig, overrides=["tlsProtocols=TLSv1.1"])
    assert load(TlsConfig, overrides=["tlsProtocols=TLSv1.3"]).value.protocols == ("TLSv1.3",)


def test_cipher_suites_are_known_and_those_of_tls_1_3_come_together() -> None:
    assert problems(NONE, ciphers=tuple(OPENSSL_NAMES)) == []
    assert problems(NONE, ciphers=(GCM, *TLS_1_3)) == []
    assert (
        "unknown cipher suite 'TLS_RSA_WITH_RC4_128_MD5'"
        in problems(NONE, ciphers=("TLS_RSA_WITH_RC4_128_MD5",))[0]
    )
    [problem] = problems(NONE, web_ciphers=("TLS_AES_128_GCM_SHA256",))
    assert problem.startswith("webServiceTlsCiphers has some of the suites of TLS 1.3 and not")


def test_a_version_without_any_suite_is_a_problem() -> None:
    assert problems(NONE, protocols=("TLSv1.3",), ciphers=(GCM,)) == [
        "tlsProtocols has TLSv1.3 and no cipher suite of it is allowed"
    ]
    assert problems(NONE, protocols=("TLSv1.2",), web_ciphers=tuple(TLS_1_3)) == [
        "webServiceTlsProtocols has TLSv1.2 and no cipher suite of it is allowed"
    ]


def test_suites_decide_which_versions_are_left() -> None:
    assert allowed_versions((), ()) == ("TLSv1.2", "TLSv1.3")
    assert allowed_versions((), (GCM,)) == ("TLSv1.2",)
    assert allowed_versions((), tuple(TLS_1_3)) == ("TLSv1.3",)
    assert allowed_versions(("TLSv1.3",), (GCM, *TLS_1_3)) == ("TLSv1.3",)
