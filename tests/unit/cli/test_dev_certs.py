"""`magnetar dev-certs` writes a whole set that fits together, and never over another one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import subprocess
from pathlib import Path

import javaproperties
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from magnetar.cli.client_conf import read_client_conf
from magnetar.cli.credentials import credentials_of
from magnetar.cli.dev_certs import SERVICES
from magnetar.cli.main import main


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dev-certs", *arguments])


@pytest.fixture
def made(tmp_path: Path) -> Path:
    directory = tmp_path / "certs"
    found = run(str(directory), "--cluster", "c", "--host", "broker.test", "--host", "10.0.0.7")
    assert found.exit_code == 0, found.output
    return directory


def settings(path: Path) -> dict[str, str]:
    return dict(javaproperties.loads(path.read_text()))


def test_leaves_are_of_their_authorities_and_have_their_names(made: Path) -> None:
    for authority, leaves in (
        ("clients-ca", ["broker", "discovery", "admin", "client"]),
        ("services-ca", [f"service-{name}" for name in SERVICES]),
    ):
        for leaf in leaves:
            subprocess.run(
                ["openssl", "verify", "-CAfile", made / f"{authority}.cert.pem", made / f"{leaf}.cert.pem"],
                check=True,
                capture_output=True,
            )
    broker = x509.load_pem_x509_certificate((made / "broker.cert.pem").read_bytes())
    names = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "broker.test"} <= set(names.get_values_for_type(x509.DNSName))
    shown = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    assert {"127.0.0.1", "::1", "10.0.0.7"} <= shown
    bookie = x509.load_pem_x509_certificate((made / "service-bookie.cert.pem").read_bytes())
    names = bookie.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://c/bookie"]
    assert bookie.subject.rfc4514_string() == "CN=magnetar-bookie"


def test_keys_and_tokens_are_for_their_owner_alone(made: Path) -> None:
    secret = [path for path in made.iterdir() if path.suffix in (".key", ".jwt") or ".key." in path.name]
    assert len(secret) == 15
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_tokens_are_signed_by_the_secret_key_and_name_their_role(made: Path) -> None:
    key = (made / "token-secret.key").read_bytes()
    assert len(key) == 32
    for role in ("admin", "client"):
        header, payload, signature = (made / f"{role}.jwt").read_text().split(".")
        right = hmac.new(key, f"{header}.{payload}".encode(), hashlib.sha256).digest()
        assert base64.urlsafe_b64decode(signature + "=") == right
        assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "HS256"}
        assert json.loads(base64.urlsafe_b64decode(payload + "==")) == {"sub": role}


def test_settings_name_files_that_exist(made: Path) -> None:
    server, client = settings(made / "standalone.conf"), settings(made / "client.conf")
    for key in ("tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath"):
        assert Path(server[key]).is_file()
    assert Path(client["tlsTrustCertsFilePath"]).is_file()
    assert Path(client["authParams"].removeprefix("file://")).is_file()
    assert server["superUserRoles"] == "admin,broker"


@pytest.mark.parametrize("role", ["admin", "client"])
def test_commands_read_the_settings_of_each_role(made: Path, role: str) -> None:
    found = read_client_conf(made / f"{role}.conf")
    assert (found.service_url, found.admin_url) == ("pulsar+ssl://localhost:6651/", "https://localhost:8443/")
    assert found.trust_certs_file == str(made / "clients-ca.cert.pem")
    credentials = credentials_of("", found.auth_params, found.auth_plugin, "", "")
    assert credentials.supply().decode() == (made / f"{role}.jwt").read_text()


def test_tls_alone_asks_for_no_identity(tmp_path: Path) -> None:
    assert run(str(tmp_path / "certs"), "--tls-only", "--rsa").exit_code == 0
    assert "authenticationEnabled" not in settings(tmp_path / "certs" / "standalone.conf")
    key = (tmp_path / "certs" / "broker.cert.pem").read_bytes()
    assert type(x509.load_pem_x509_certificate(key).public_key()).__name__ == "RSAPublicKey"


def test_the_table_names_every_file_and_what_to_run(tmp_path: Path) -> None:
    shown = run(str(tmp_path / "certs"), "--tls-only").output
    assert all(f"{path}\t" in shown for path in (tmp_path / "certs").iterdir())
    assert f"magnetar standalone --config {tmp_path / 'certs' / 'standalone.conf'}" in shown


def test_a_directory_with_something_in_it_is_left_alone(made: Path) -> None:
    before = (made / "broker.key.pem").read_bytes()
    found = run(str(made))
    assert found.exit_code == 2
    assert "is not empty; name another directory" in found.output
    assert (made / "broker.key.pem").read_bytes() == before
