"""Files with the keys of Pulsar's client.conf, and profiles."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from magnetar.cli.client_conf import ClientConf, profile_path, read_client_conf

SHIPPED = """\
# As Apache Pulsar ships it.
webServiceUrl=http://localhost:8080/
brokerServiceUrl=pulsar://localhost:6650/
authPlugin=
authParams=
tlsAllowInsecureConnection=false
tlsEnableHostnameVerification=false
tlsTrustCertsFilePath=
tlsCertificateFilePath=
tlsKeyFilePath=
useKeyStoreTls=false
tlsTrustStoreType=JKS
tlsTrustStorePath=
tlsTrustStorePassword=
tlsKeyStoreType=JKS
tlsKeyStorePath=
tlsKeyStorePassword=
webserviceTlsProvider=
proxyServiceUrl=
proxyProtocol=
"""


def conf(tmp_path: Path, text: str) -> ClientConf:
    path = tmp_path / "client.conf"
    path.write_text(text)
    return read_client_conf(path)


def test_the_file_that_apache_pulsar_ships_is_read(tmp_path: Path) -> None:
    assert conf(tmp_path, SHIPPED) == ClientConf(
        path=str(tmp_path / "client.conf"),
        service_url="pulsar://localhost:6650/",
        admin_url="http://localhost:8080/",
        allow_insecure=False,
        verify_hostname=False,
    )


def test_every_setting_is_read_and_secrets_are_not_shown(tmp_path: Path) -> None:
    found = conf(
        tmp_path,
        "authPlugin=token\nauthParams = token:hush \ntlsTrustCertsFilePath=/ca\ntlsCertificateFilePath=/c\n"
        "tlsKeyFilePath=/k\ntlsAllowInsecureConnection=TRUE\n",
    )
    assert (found.auth_plugin, found.auth_params) == ("token", "token:hush")
    assert (found.trust_certs_file, found.certificate_file, found.key_file) == ("/ca", "/c", "/k")
    assert (found.allow_insecure, found.verify_hostname) == (True, None)
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tlsTrustCertFilePath=/ca", "did you mean tlsTrustCertsFilePath"),
        ("colour=red", "it needs the keys of Pulsar's client.conf"),
        ("useKeyStoreTls=true", "convert them to PEM files"),
        ("proxyServiceUrl=pulsar+ssl://proxy:443", "set brokerServiceUrl"),
        ("tlsAllowInsecureConnection=maybe", "neither true nor false"),
        ("authParams=\\u12", "not a properties file"),
    ],
)
def test_a_line_that_cannot_be_followed_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(click.UsageError, match=told) as caught:
        conf(tmp_path, text)
    assert str(tmp_path / "client.conf") in caught.value.message


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match=r"cannot read .*: No such file"):
        read_client_conf(tmp_path / "client.conf")


def test_a_profile_is_a_file_of_that_name(tmp_path: Path) -> None:
    directory = tmp_path / "magnetar" / "profiles"
    directory.mkdir(parents=True)
    for name in ("prod", "staging"):
        (directory / f"{name}.conf").touch()
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert profile_path("prod", environment) == directory / "prod.conf"
    with pytest.raises(
        click.UsageError, match=r"no profile 'test': .*test\.conf does not exist; there are prod, staging"
    ):
        profile_path("test", environment)
    with pytest.raises(click.UsageError, match=r"write a client\.conf there"):
        profile_path("test", {"XDG_CONFIG_HOME": str(tmp_path / "empty")})


@pytest.mark.parametrize("name", ["", "../prod", "a/b", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(click.UsageError, match="invalid profile"):
        profile_path(name, {})
