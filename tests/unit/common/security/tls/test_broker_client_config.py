"""Settings of our own calls to brokers, in each form that Pulsar's configuration files have."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.config.loader import load
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig, tls_parameters

TLS = "org.apache.pulsar.client.impl.auth.AuthenticationTls"


@pytest.mark.parametrize(
    "text",
    ['{"tlsCertFile":"/c.pem","tlsKeyFile":"/k.pem"}', "tlsCertFile:/c.pem,tlsKeyFile:/k.pem"],
)
def test_the_plug_in_names_certificate_and_key(text: str) -> None:
    config = load(
        BrokerClientConfig,
        overrides=[
            f"brokerClientAuthenticationPlugin={TLS}",
            f"brokerClientAuthenticationParameters={text}",
            "brokerClientCertificateFilePath=/other.pem",
        ],
    ).value
    files = config.files()
    assert (files.certificate, files.key) == ("/c.pem", "/k.pem")
    assert files.verify_hostname
    assert config.problems() == []


@pytest.mark.parametrize("text", ["", "{broken", "nothing"])
def test_a_plug_in_without_its_parameters_is_a_problem(text: str) -> None:
    assert tls_parameters(text) == {}
    [problem] = BrokerClientConfig(plugin=TLS, parameters=text).problems()
    assert "tlsCertFile and tlsKeyFile" in problem


def test_an_empty_plug_in_with_empty_parameters_is_nothing() -> None:
    config = load(
        BrokerClientConfig,
        overrides=["brokerClientAuthenticationPlugin=", "brokerClientAuthenticationParameters="],
    ).value
    assert config.problems() == []
    assert config.token() == ""


def test_a_token_is_text_or_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    assert BrokerClientConfig(plugin="token", parameters="token:abc").token() == "abc"
    file = tmp_path / "token"
    config = BrokerClientConfig(plugin="token", parameters=f"file://{file}")
    for text in ("one", "two"):
        file.write_text(f"{text}\n")
        assert config.token() == text
    assert "token:TEXT" in BrokerClientConfig(plugin="token").problems()[0]


def test_files_are_checked_where_tls_is_on_and_a_certificate_needs_its_key() -> None:
    lonely = BrokerClientConfig(certificate_file="/c.pem")
    assert "need each other" in lonely.problems()[0]
    missing = BrokerClientConfig(tls_enabled=True, trust_certs_file="/nowhere.pem")
    assert missing.problems() == ["brokerClientTrustCertsFilePath = '/nowhere.pem': no such file"]
    assert BrokerClientConfig(trust_certs_file="/nowhere.pem").problems() == []


def test_secrets_are_in_no_problem() -> None:
    config = BrokerClientConfig(plugin=TLS, parameters="tlsCertFile:/c.pem,password:secret")
    assert "secret" not in "".join(config.problems())
