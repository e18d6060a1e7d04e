"""Links to brokers: the address, the certificate that is shown, and the credentials of discovery itself."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.discovery.transport.broker_access import BrokerAccess

from tests.unit.common.security.tls.peers import Files, echo_port


def registration(**urls: str) -> BrokerRegistration:
    found = BrokerRegistration(broker_id="b:8080")
    for name, url in urls.items():
        setattr(found.addresses, name, url)
    return found


@pytest.fixture
def config(tmp_path: Path) -> BrokerClientConfig:
    """Discovery with a certificate that is not its identity on links of its own."""
    authority = Authority("clients")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    certificate, key = authority.issue("discovery").write(tmp_path, "discovery")
    return BrokerClientConfig(
        trust_certs_file=str(tmp_path / "ca.pem"), certificate_file=str(certificate), key_file=str(key)
    )


def sent(access: BrokerAccess) -> pb.CommandConnect:
    return pb.BaseCommand.FromString(access.connect_command()[8:]).connect


def test_without_tls_there_is_no_certificate_and_the_plain_address() -> None:
    access = BrokerAccess(BrokerClientConfig(), tls=False)
    both = registration(broker_url="pulsar://b:6650", broker_url_tls="pulsar+ssl://b:6651")
    assert access.address(both) == ("b", 6650)
    assert (access.uses_tls, access.as_proxy, access.context()) == (False, False, None)
    assert access.context(shows_certificate=False) is None


def test_with_tls_a_broker_is_reached_at_its_tls_address_only(config: BrokerClientConfig) -> None:
    access = BrokerAccess(config, tls=True)
    both = registration(broker_url="pulsar://b:6650", broker_url_tls="pulsar+ssl://b:6651")
    assert access.address(both) == ("b", 6651)
    with pytest.raises(ServiceNotReady, match="no usable address"):
        access.address(registration(broker_url="pulsar://b:6650"))


def test_a_certificate_without_tls_makes_no_proxy(config: BrokerClientConfig) -> None:
    assert not BrokerAccess(config, tls=False).as_proxy
    assert not BrokerAccess(BrokerClientConfig(), tls=True).as_proxy
    assert BrokerAccess(config, tls=True).as_proxy


def test_the_certificate_is_shown_only_where_it_is_asked_for(tmp_path: Path) -> None:
    files = Files(tmp_path)
    certificate, key = files.authority.issue("discovery").write(files.directory, "discovery")
    config = BrokerClientConfig(
        trust_certs_file=files.config.trust_certs_file,
        certificate_file=str(certificate),
        key_file=str(key),
    )

    async def body() -> None:
        access = BrokerAccess(config, tls=True)
        async with echo_port(files.config) as port:
            shown: list[bytes | None] = []
            for shows in (True, False):
                context = access.context(shows_certificate=shows)
                assert isinstance(context, ssl.SSLContext)
                assert await port.echo(context) is not None
                shown.append(port.protocols[-1].certificate)
        assert (shown[0] is None, shown[1]) == (False, None)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("plugin", "parameters", "tls", "method", "data"),
    [
        ("", "", False, None, b""),
        ("", "", True, None, b""),
        ("token", "token:ours", False, "token", b"ours"),
        ("token", "token:ours", True, "token", b"ours"),
        ("tls", "", True, "tls", b""),
        ("tls", "", False, None, b""),
    ],
)
def test_a_link_names_the_configured_method(
    config: BrokerClientConfig, plugin: str, parameters: str, tls: bool, method: str | None, data: bytes
) -> None:
    changed: dict[str, Any] = {"plugin": plugin, "parameters": parameters}
    connect = sent(BrokerAccess(replace(config, **changed), tls=tls))
    found = connect.auth_method_name if connect.HasField("auth_method_name") else None
    assert (found, connect.auth_data) == (method, data)
    assert not connect.HasField("original_principal")
    assert not connect.HasField("proxy_version")


def test_a_token_file_is_read_for_each_link_and_its_loss_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    access = BrokerAccess(BrokerClientConfig(plugin="token", parameters=f"file://{path}"), tls=False)
    with pytest.raises(ServiceNotReady, match="No such file"):
        access.connect_command()
    for text in ("first", "second"):
        path.write_text(f"{text}\n")
        assert sent(access).auth_data == text.encode()
