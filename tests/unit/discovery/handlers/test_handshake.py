"""Carried credentials: fields of proxies are removed, and method tls never goes on unchanged."""

from __future__ import annotations

import ssl

import pytest
from magnetar.common.errors import AuthenticationFailed
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls.certificate_times import not_after
from magnetar.common.wire.auth_method import method_of
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect
from magnetar.discovery.handlers.handshake import carry_credentials


def connect(**fields: object) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version="c"))
    for name, value in fields.items():
        setattr(command.connect, name, value)
    return command


def certificate(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Authority("clients").issue(name).certificate.decode())


@pytest.mark.parametrize("as_proxy", [True, False])
@pytest.mark.parametrize("method", ["token", "basic", "none", "unknown"])
def test_a_client_s_own_credentials_go_on_and_what_a_proxy_says_does_not(method: str, as_proxy: bool) -> None:
    command = connect(
        auth_method_name=method,
        auth_data=b"secret",
        original_principal="admin",
        original_auth_data="more",
        original_auth_method="token",
        proxy_version="p",
    )
    assert carry_credentials(command, certificate("alice"), as_proxy=as_proxy) is None
    sent = command.connect
    assert (sent.auth_method_name, sent.auth_data) == (method, b"secret")
    for name in ("original_principal", "original_auth_data", "original_auth_method", "proxy_version"):
        assert not sent.HasField(name)


def test_method_tls_becomes_the_original_principal_of_discovery_s_own_certificate() -> None:
    command = connect(auth_method_name="tls", auth_data=b"x", original_principal="admin")
    shown = certificate("alice")
    assert carry_credentials(command, shown, as_proxy=True) == not_after(shown)
    sent = command.connect
    assert (sent.auth_method_name, sent.auth_data) == ("tls", b"")
    assert (sent.original_principal, sent.original_auth_method) == ("alice", "tls")
    assert sent.proxy_version


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("as_proxy", [True, False])
def test_method_tls_goes_on_only_with_both_certificates(shown: bool, as_proxy: bool) -> None:
    if shown and as_proxy:
        return
    with pytest.raises(AuthenticationFailed):
        carry_credentials(
            connect(auth_method_name="tls"), certificate("alice") if shown else None, as_proxy=as_proxy
        )


def test_a_connect_without_a_method_names_none() -> None:
    assert method_of(connect().connect) == "none"
