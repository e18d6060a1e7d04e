"""Commands reach etcd with the TLS and credentials of options and of the environment."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.cli.metadata_credentials import metadata_access, metadata_options
from magnetar.common.errors import ConfigError

PREFIX = "MAGNETAR_MAGNETAR_METADATA"


def test_without_tls_and_user_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGNETAR_METADATA_STORE_URL", "etcd:https://elsewhere:2379")
    assert metadata_access("etcd:a:2379") is None
    assert metadata_access("sqlite:x") is None


def test_files_and_user_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRUST_CERTS", "CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"{PREFIX}_TLS_{name}_FILE_PATH", f"/tls/{name}")
    access = metadata_access("etcd:https://a:2379,https://b:2379")
    assert access is not None
    assert access.tls
    assert (access.trust_certs, access.certificate, access.key) == (
        Path("/tls/TRUST_CERTS"),
        Path("/tls/CERTIFICATE"),
        Path("/tls/KEY"),
    )
    for name, value in (("USER", "backup"), ("PASSWORD_FILE", "/tls/password")):
        monkeypatch.setenv(f"{PREFIX}_{name}", value)
    access = metadata_access("etcd:https://a:2379")
    assert access is not None
    assert (access.user, access.password_file) == ("backup", Path("/tls/password"))


def test_files_without_tls_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}_TLS_TRUST_CERTS_FILE_PATH", "/tls/ca")
    with pytest.raises(ConfigError, match="write etcd:https://"):
        metadata_access("etcd:a:2379")
    done = CliRunner().invoke(main, ["admin", "--metadata", "etcd:127.0.0.1:1", "bookies", "list"])
    assert (done.exit_code, "write etcd:https://" in done.output) == (2, True)


def test_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRUST_CERTS", "CERTIFICATE", "KEY"):
        monkeypatch.setenv(f"{PREFIX}_TLS_{name}_FILE_PATH", f"/tls/{name}")
    found: list[tuple[str, ...]] = []

    @click.command()
    @metadata_options
    def command(metadata_settings: tuple[str, ...]) -> None:
        found.append(metadata_settings)

    line = ["--metadata-trust-certs", "/ca", "--metadata-user", "me", "--metadata-password-file", "/secret"]
    CliRunner().invoke(command, line, catch_exceptions=False)
    access = metadata_access("etcd:https://a:2379", found[0])
    assert access is not None
    assert (access.trust_certs, access.key) == (Path("/ca"), Path("/tls/KEY"))
    assert (access.user, access.password_file) == ("me", Path("/secret"))
    CliRunner().invoke(command, [], catch_exceptions=False)
    assert found[1] == ()


def test_options_reach_the_commands_that_read_metadata() -> None:
    line = ["admin", "--metadata", "etcd:127.0.0.1:1", "--metadata-trust-certs", "/ca", "bookies", "list"]
    done = CliRunner().invoke(main, line)
    assert (done.exit_code, "write etcd:https://" in done.output) == (2, True)


def test_help_names_the_variable_of_each_option(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "".join(CliRunner().invoke(main, ["doctor", "--help"]).output.split())  # names may be broken
    monkeypatch.setenv(f"{PREFIX}_USER", "me")
    monkeypatch.setenv(f"{PREFIX}_PASSWORD_FILE", "/secret")
    for name in ("TLS_TRUST_CERTS_FILE_PATH", "TLS_KEY_FILE_PATH", "USER", "PASSWORD_FILE"):
        assert f"{PREFIX}_{name}" in shown
    access = metadata_access("etcd:a:2379")
    assert access is not None
    assert access.user == "me"
