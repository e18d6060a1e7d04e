"""`magnetar admin metadata users`: who may call it, and what it does to a real etcd."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main

from tests.certificates import Authority, Pair
from tests.etcd_server import EtcdServer, EtcdTls, grpc_stays

NOWHERE = "etcd:https://127.0.0.1:1"


def users(
    monkeypatch: pytest.MonkeyPatch, url: str, authority: Authority, pair: Pair | None, *arguments: str
) -> Result:
    files = {"TRUST_CERTS": authority.certificate}
    if pair is not None:
        files |= {"CERTIFICATE": pair.certificate, "KEY": pair.key}
    for name, path in files.items():
        monkeypatch.setenv(f"MAGNETAR_MAGNETAR_METADATA_TLS_{name}_FILE_PATH", str(path))
    options = ["--metadata", url, "--cluster", "eu"]
    return CliRunner().invoke(main, ["admin", *options, "metadata", "users", *arguments])


def test_callers_that_would_lock_themselves_out_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    done = users(monkeypatch, NOWHERE, authority, None)
    assert (done.exit_code, "no client certificate" in done.output) == (2, True)
    done = users(monkeypatch, NOWHERE, authority, authority.issue("magnetar-broker"))
    assert done.exit_code == 2
    assert "'magnetar-broker' is no administrator" in " ".join(done.output.split())
    monkeypatch.undo()
    done = CliRunner().invoke(main, ["admin", "--metadata", "etcd:127.0.0.1:1", "metadata", "users"])
    assert (done.exit_code, "use etcd:https://" in done.output) == (2, True)


def test_users_are_made_once_and_access_control_is_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    operator, broker = authority.issue("ops"), authority.issue("magnetar-broker")
    tls = EtcdTls(authority.certificate, authority.issue("server"), broker)
    with grpc_stays(), EtcdServer.running(tmp_path / "etcd", tls=tls) as server:
        done = users(monkeypatch, server.url, authority, operator, "--administrator", "ops")
        assert done.exit_code == 0, done.output
        assert "role magnetar-discovery may read /magnetar/eu/*" in done.output
        again = users(monkeypatch, server.url, authority, operator, "--administrator", "ops")
        assert again.output == "access control is on; 0 changes\n"
        with pytest.raises(AssertionError, match="permission denied"):
            server.etcdctl("user", "list")
        assert server.etcdctl("put", "/magnetar/eu/key", "value") == "OK\n"
