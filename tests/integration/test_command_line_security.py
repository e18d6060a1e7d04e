"""Commands with OAuth2, files of Pulsar's client.conf and checked names, on a secured standalone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.second_address import ADDRESS, also_at
from tests.clients.secured import SecuredService, secured_standalone
from tests.clients.security_catalogue import AUDIENCE
from tests.integration.harness import magnetar_command, temporary_directory

pytestmark = [pytest.mark.full]

PLUGINS = "org.apache.pulsar.client.impl.auth"


@pytest.fixture(scope="module")
def service() -> Iterator[SecuredService]:
    directory = temporary_directory()
    with secured_standalone(directory) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def profiles(service: SecuredService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of profiles: `admin` by a token, `reporting` by OAuth2."""
    base = tmp_path_factory.mktemp("config")
    directory = base / "magnetar" / "profiles"
    directory.mkdir(parents=True)
    files = service.credentials.directory
    common = {
        "brokerServiceUrl": f"pulsar+ssl://localhost:{service.tls_port}/",
        "webServiceUrl": f"https://localhost:{service.web_tls_port}/",
        "tlsTrustCertsFilePath": str(files / "ca.pem"),
    }
    for name, plugin, parameters in (
        ("admin", f"{PLUGINS}.AuthenticationToken", f"file://{files / 'admin.token'}"),
        ("reporting", f"{PLUGINS}.oauth2.AuthenticationOAuth2", oauth2(service)),
    ):
        given = {**common, "authPlugin": plugin, "authParams": parameters}
        text = "".join(f"{key}={value}\n" for key, value in given.items())
        (directory / f"{name}.conf").write_text(text)
    return base


def oauth2(service: SecuredService, key: str = "oauth2.json") -> str:
    files = service.credentials.directory
    return json.dumps(
        {
            "issuerUrl": service.issuer.url,
            "privateKey": f"file://{files / key}",
            "audience": AUDIENCE,
            "trustCertsFilePath": str(files / "ca.pem"),
        }
    )


def magnetar(profiles: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it printed."""
    done = subprocess.run(
        [*magnetar_command(), *arguments],
        env={**os.environ, "XDG_CONFIG_HOME": str(profiles)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_token_of_an_issuer_publishes_consumes_and_asks_over_https(
    service: SecuredService, profiles: Path
) -> None:
    granted = service.issuer.granted
    code, told = magnetar(profiles, "produce", "by-oauth2", "-m", "hello", "--profile", "reporting")
    assert (code, "1 message successfully produced" in told) == (0, True), told
    line = ["consume", "by-oauth2", "-s", "s", "-p", "Earliest", "--profile", "reporting"]
    code, told = magnetar(profiles, *line)
    assert (code, "hello" in told) == (0, True), told
    code, told = magnetar(
        profiles, "admin", "--profile", "reporting", "topics", "stats", "by-oauth2", "--json"
    )
    assert code == 0, told
    assert service.issuer.granted == granted + 3
    code, told = magnetar(profiles, "admin", "--profile", "reporting", "tenants", "list")
    assert (code, "HTTP 401" in told) == (1, True), told


def test_a_secret_that_the_issuer_refuses_is_told_with_the_remedy(
    service: SecuredService, profiles: Path
) -> None:
    wrong = {"client_id": "reporting", "client_secret": "guessed"}
    (service.credentials.directory / "wrong.json").write_text(json.dumps(wrong))
    options = ["--auth-plugin", "oauth2", "--auth-params", oauth2(service, "wrong.json")]
    for line in (
        ["produce", "refused", "-m", "x", "--profile", "reporting", *options],
        ["admin", "--profile", "reporting", *options, "tenants", "list"],
    ):
        code, told = magnetar(profiles, *line)
        assert code == 1, told
        assert "invalid_client" in told
        assert "check client_id and client_secret" in told
        assert "guessed" not in told


def test_names_are_checked_unless_that_is_switched_off(service: SecuredService, profiles: Path) -> None:
    with also_at(service.tls_port):
        line = ["produce", "by-address", "-m", "x", "--profile", "admin"]
        line += ["--url", f"pulsar+ssl://{ADDRESS}:{service.tls_port}"]
        code, told = magnetar(profiles, *line)
        assert (code, "certificate verify failed" in told) == (3, True), told
        code, told = magnetar(profiles, *line, "--no-tls-enable-hostname-verification")
        assert code == 0, told


def test_doctor_is_content_with_good_credentials_and_names_bad_ones(
    service: SecuredService, profiles: Path
) -> None:
    def findings(*options: str) -> dict[str, dict[str, str]]:
        _, told = magnetar(profiles, "doctor", "--cluster-only", "--json", "--profile", "admin", *options)
        return {each["check"]: each for each in json.loads(told)}

    good = findings()
    assert {each["state"] for each in good.values()} <= {"ok", "skipped"}, good
    assert good[f"credentials at localhost:{service.tls_port}"]["found"] == "accepted, by method token"
    forged = findings("--token", f"file:{service.credentials.directory / 'forged.token'}")
    states = {check: each["state"] for check, each in forged.items() if each["state"] != "ok"}
    assert states[f"credentials at localhost:{service.tls_port}"] == "failure"
    assert states[f"broker https://localhost:{service.web_tls_port}"] == "warning"


def test_an_authority_that_is_not_named_is_told_with_the_remedy(
    service: SecuredService, profiles: Path
) -> None:
    code, told = magnetar(
        profiles, "admin", "--admin-url", f"https://localhost:{service.web_tls_port}", "tenants", "list"
    )
    assert (code, "--tls-trust-cert-path" in told) == (3, True), told
