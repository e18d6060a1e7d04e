"""The client's side: what it trusts, what it shows, and that changed files count for new connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from magnetar.common.errors import ConfigError
from magnetar.common.security.certificates import Authority
from magnetar.common.security.tls import client_context
from magnetar.common.security.tls.client_context import ClientFiles, ClientTls

from tests.unit.common.security.tls.peers import Files, echo_port


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def client_files(files: Files) -> ClientFiles:
    return ClientFiles(trust_certs=files.config.trust_certs_file)


def test_names_are_verified_unless_told_otherwise(files: Files) -> None:
    async def body() -> None:
        files.serve(files.authority.issue("other", dns=["elsewhere"]))
        known = client_files(files)
        async with echo_port(files.config) as port:
            assert await port.echo(ClientTls(known).context()) is None
            assert await port.echo(ClientTls(replace(known, verify_hostname=False)).context()) is not None
            stranger = files.directory / "stranger.pem"
            stranger.write_bytes(Authority("stranger").certificate)
            wrong = replace(known, trust_certs=str(stranger), verify_hostname=False)
            assert await port.echo(ClientTls(wrong).context()) is None
            assert await port.echo(ClientTls(replace(wrong, allow_insecure=True)).context()) is not None

    asyncio.run(body())


def test_a_certificate_is_shown_and_a_renewed_one_from_the_next_connection_on(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_context, "LOOK_EVERY_S", 0.0)

    async def body() -> None:
        certificate, key = files.authority.issue("me").write(files.directory, "me")
        tls = ClientTls(replace(client_files(files), certificate=str(certificate), key=str(key)))
        async with echo_port(files.config, require_client_certificate=True) as port:
            await port.echo(tls.context())
            first = port.protocols[-1].certificate
            context = tls.context()
            certificate.write_bytes(b"half a file")
            assert tls.context() is context
            renewed = files.authority.issue("me")
            certificate.write_bytes(renewed.certificate)
            key.write_bytes(renewed.key)
            assert await port.echo(tls.context()) is not None
            assert port.protocols[-1].certificate not in (None, first)

    asyncio.run(body())


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/ca\.pem"):
        ClientTls(ClientFiles(trust_certs="/nowhere/ca.pem"))
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/me\.pem"):
        ClientTls(ClientFiles(certificate="/nowhere/me.pem", key="/nowhere/me.key"))
