"""Which source of URLs, credentials and TLS counts: options, a file, the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.access_options import Access, access_options

FILE = """\
webServiceUrl=https://file:8443/
authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
authParams=token:of-file
tlsTrustCertsFilePath=/ca-of-file
tlsEnableHostnameVerification=false
"""


def result(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[Access | None, str, str]:
    """Access and URL that a command gets, and what it printed."""
    found: list[tuple[Access, str]] = []

    @click.command()
    @click.option("--admin-url", envvar="MAGNETAR_ADMIN_URL", default="http://default:8080")
    @access_options
    def command(admin_url: str, access: Access) -> None:
        found.append((access, admin_url))

    done = CliRunner().invoke(command, list(arguments), env=dict(environment or {}))
    access, url = found[0] if found else (None, "")
    return access, url, done.output


def secret(access: Access | None) -> str:
    assert access is not None
    return access.credentials.supply().decode()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "client.conf"
    path.write_text(FILE)
    return str(path)


ENVIRONMENT = {"MAGNETAR_ADMIN_URL": "http://environment:8080", "MAGNETAR_TOKEN": "of-environment"}


def test_without_anything_there_are_defaults() -> None:
    access, url, _ = result([])
    assert (access, url) == (Access(), "http://default:8080")
    assert access is not None
    assert not access.has_tls_settings


def test_a_file_gives_url_credentials_and_tls(file: str) -> None:
    access, url, _ = result(["--client-conf", file])
    assert access is not None
    assert (url, secret(access), access.conf_file) == ("https://file:8443/", "of-file", file)
    assert (access.trust_certs_file, access.verify_hostname, access.allow_insecure) == (
        "/ca-of-file",
        False,
        False,
    )


def test_options_go_before_the_file(file: str) -> None:
    access, url, _ = result(
        [
            *("--client-conf", file, "--admin-url", "http://option:1", "--token", "of-option"),
            *("--tls-trust-cert-path", file, "--tls-enable-hostname-verification"),
        ]
    )
    assert access is not None
    assert (url, secret(access)) == ("http://option:1", "of-option")
    assert (access.trust_certs_file, access.verify_hostname) == (file, True)


def test_a_file_named_by_an_option_switches_the_environment_off(tmp_path: Path, file: str) -> None:
    access, url, _ = result(["--client-conf", file], ENVIRONMENT)
    assert (url, secret(access)) == ("https://file:8443/", "of-file")
    empty = tmp_path / "empty.conf"
    empty.touch()
    access, url, _ = result(["--client-conf", str(empty)], ENVIRONMENT)
    assert access is not None
    assert (url, access.credentials.method) == ("http://default:8080", "")


def test_the_environment_goes_before_a_file_that_it_names(file: str) -> None:
    environment = {**ENVIRONMENT, "MAGNETAR_CLIENT_CONF": file}
    access, url, _ = result([], environment)
    assert access is not None
    assert (url, secret(access)) == ("http://environment:8080", "of-environment")
    assert access.trust_certs_file == "/ca-of-file"


def test_parameters_alone_go_to_the_plugin_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("authPlugin=basic\nauthParams=me:of-file\n")
    access, _, _ = result(["--client-conf", str(path), "--auth-params", "me:of-option"])
    assert access is not None
    assert (access.credentials.method, secret(access)) == ("basic", "me:of-option")


@pytest.mark.parametrize("more", [["--token", "mine"], ["--auth-plugin", "token", "--auth-params", "mine"]])
def test_another_plugin_takes_nothing_from_the_file(tmp_path: Path, more: list[str]) -> None:
    path = tmp_path / "client.conf"
    path.write_text("authPlugin=tls\nauthParams=tlsCertFile:/c,tlsKeyFile:/k\n")
    access, _, _ = result(["--client-conf", str(path), *more])
    assert access is not None
    assert (access.credentials.method, secret(access)) == ("token", "mine")
    assert access.credentials.certificate_file == ""
    _, _, told = result(["--client-conf", str(path), "--auth-plugin", "basic"])
    assert "the basic plugin needs the parameters" in told


def test_a_profile_is_found_by_name(tmp_path: Path) -> None:
    directory = tmp_path / "magnetar" / "profiles"
    directory.mkdir(parents=True)
    (directory / "prod.conf").write_text(FILE)
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    by_option, _, _ = result(["--profile", "prod"], environment)
    by_environment, _, _ = result([], {**environment, "MAGNETAR_PROFILE": "prod"})
    assert secret(by_option) == secret(by_environment) == "of-file"
    _, _, told = result(["--profile", "test"], environment)
    assert "there are prod" in told


def test_an_option_chooses_between_a_file_and_a_profile_and_two_options_do_not(file: str) -> None:
    access, _, _ = result(["--client-conf", file], {"MAGNETAR_PROFILE": "missing"})
    assert secret(access) == "of-file"
    _, _, told = result(["--client-conf", file, "--profile", "prod"])
    assert "--client-conf and --profile exclude each other" in told


def test_no_verification_of_names_is_one_option() -> None:
    access, _, _ = result(["--no-tls-enable-hostname-verification"])
    assert access is not None
    assert access.has_tls_settings
    assert not access.files().verify_hostname
