"""TLS and mutual TLS between clients and a bookie, both by configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.bookie.config import TlsConfig
from magnetar.bookie.tls import server_credentials
from magnetar.common.errors import ConfigError
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, UNREACHABLE, Code
from magnetar.ledger.bookie_protocol.grpc_clients import ClientTls, GrpcBookieClients

from tests.certificates import Authority
from tests.unit.bookie.grpc_bookie import append, running


def outcome(directory: Path, server: TlsConfig, client: ClientTls | None) -> tuple[Code.ValueType, str]:
    """What one append over these two ends is answered."""

    async def main() -> tuple[Code.ValueType, str]:
        async with (
            asyncio.timeout(60),
            running(directory, credentials=server_credentials(server), tls=client) as bookie,
        ):
            answer = await append(bookie.client, 0, [b"a"])
            if answer[0] == OK:
                assert (await bookie.client.describe()).bookie_id == "b1"
            return answer

    return asyncio.run(main())


def test_a_client_that_trusts_the_bookie_is_served_and_others_are_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("bookie")
    server = TlsConfig(certificate=str(pair.certificate), key=str(pair.key))
    trusting = ClientTls(trust_certs=authority.certificate)
    assert outcome(tmp_path, server, trusting) == (OK, "")
    stranger = ClientTls(trust_certs=Authority(tmp_path, "stranger").certificate)
    assert outcome(tmp_path, server, stranger)[0] == UNREACHABLE
    assert outcome(tmp_path, server, None)[0] == UNREACHABLE


def test_with_mutual_tls_only_clients_with_a_certificate_are_served(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair, own, foreign = authority.issue("bookie"), authority.issue("broker"), stranger.issue("broker")
    server = TlsConfig(
        certificate=str(pair.certificate),
        key=str(pair.key),
        trust_certs=str(authority.certificate),
        client_authentication=True,
    )
    trust = authority.certificate
    known = ClientTls(trust_certs=trust, certificate=own.certificate, key=own.key)
    assert outcome(tmp_path, server, known) == (OK, "")
    assert outcome(tmp_path, server, ClientTls(trust_certs=trust))[0] == UNREACHABLE
    unknown = ClientTls(trust_certs=trust, certificate=foreign.certificate, key=foreign.key)
    assert outcome(tmp_path, server, unknown)[0] == UNREACHABLE


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.pem", tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.pem"):
        server_credentials(TlsConfig(certificate=str(missing), key=str(missing)))
    with pytest.raises(ConfigError, match=r"text\.pem is not a PEM file"):
        GrpcBookieClients(lambda _: None, tls=ClientTls(trust_certs=text))
    with pytest.raises(ConfigError, match="together"):
        GrpcBookieClients(lambda _: None, tls=ClientTls(trust_certs=text, certificate=text))
