"""Commands reach etcd with the TLS and credentials that the environment names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.cli.metadata_credentials import metadata_access
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
